"""The worker's configuration: defaults < TOML file < environment < flags."""

from stream_dedup.config.kafka import KafkaConfig
from stream_dedup.config.model import Config
from stream_dedup.config.pipeline import PipelineConfig
from stream_dedup.config.sections import (
    HttpConfig,
    IndexConfig,
    LogConfig,
    OtelConfig,
    WorkerConfig,
)
from stream_dedup.config.sources import Loaded, load

__all__ = [
    "Config",
    "HttpConfig",
    "IndexConfig",
    "KafkaConfig",
    "Loaded",
    "LogConfig",
    "OtelConfig",
    "PipelineConfig",
    "WorkerConfig",
    "load",
]
