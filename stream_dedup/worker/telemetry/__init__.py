"""What a worker reports: metrics, logs, traces, health and the status page."""
