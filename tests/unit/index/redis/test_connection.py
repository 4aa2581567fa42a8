from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.connection import Tls


@pytest.mark.parametrize("file", ["ca_file", "cert_file", "key_file"])
def test_a_certificate_that_cannot_be_read_is_named(file: str) -> None:
    with pytest.raises(IndexRefused, match=r"/no/such\.pem"):
        RedisClient("rediss://127.0.0.1", tls=replace(Tls(), **{file: "/no/such.pem"}))  # type: ignore[arg-type]


def test_without_tls_no_certificate_is_looked_for() -> None:
    assert str(RedisClient("redis://h", tls=Tls("/no/such.pem")).address) == "redis://h:6379"
