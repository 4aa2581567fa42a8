"""Where events come from besides Kafka: files, lines, an in-memory broker; and the ports."""
