"""Where events come from besides Kafka: files and lines; and the ports."""
