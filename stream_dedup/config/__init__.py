"""The worker's configuration: defaults < TOML file < environment < flags."""

from stream_dedup.config.kafka import Kafka
from stream_dedup.config.load import Loaded, load
from stream_dedup.config.model import Config
from stream_dedup.config.pipeline import Pipeline
from stream_dedup.config.sections import Http, Index, Log, Worker

__all__ = ["Config", "Http", "Index", "Kafka", "Loaded", "Log", "Pipeline", "Worker", "load"]
