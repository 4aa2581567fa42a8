"""The Kafka adapter: everything that imports aiokafka."""
