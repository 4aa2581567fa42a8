"""What is faster than aiokafka's public interface; the only user of its private names."""
