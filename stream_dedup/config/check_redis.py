"""Whether Redis is as the configuration takes it to be."""

from __future__ import annotations

from collections.abc import AsyncIterator

from stream_dedup.config.findings import Finding, error, ok, warning
from stream_dedup.config.model import Config
from stream_dedup.config.pipeline import Pipeline
from stream_dedup.errors import IndexRefused, IndexUnavailable
from stream_dedup.index.redis.advice import advise, judge_shards
from stream_dedup.index.redis.inspection import Reader
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import compare_settings, describe, read_stamp
from stream_dedup.index.redis.permissions import refused
from stream_dedup.index.redis.server import Patience


async def check_redis(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Look at the server and at the namespaces. Nothing is made or changed.

    Args:
        config: what is to hold.
        within_s: how long an answer may take.
    """
    index = config.index
    subject = f"redis {index.address}"
    patience = Patience(within_s=min(within_s, index.within_s), timeout_s=min(within_s, 5.0))
    try:
        reader = Reader(
            index.redis_url,
            patience=patience,
            tls=index.tls(),
            sentinel_password=index.secret("sentinel_password"),
        )
    except IndexRefused as failed:
        yield error(subject, str(failed))
        return
    try:
        named = {pipeline.namespace: pipeline for pipeline in config.pipelines}
        keys = [Shard(name, number).meta for name in named for number in range(index.shards)]
        missing = sorted({name for key in keys for name in await refused(reader, key)})
        if missing:
            text = (
                f"the user may not run {', '.join(missing)}; give the permissions that "
                "docs/how-to/redis-security.md lists"
            )
            yield error(subject, text)
        else:
            yield ok(subject, "connected, with the permissions that a worker needs")
        advice = dict.fromkeys([each for key in keys for each in await advise(reader, key)])
        for sentence in advice:
            yield warning(subject, sentence)
        for sentence in judge_shards(index.shards, index.max_clusters):
            yield warning(subject, sentence)
        for pipeline in named.values():
            async for about in _namespace(config, pipeline, reader):
                yield about
    except (IndexUnavailable, IndexRefused) as failed:
        yield error(subject, str(failed))
    finally:
        await reader.aclose()


async def _namespace(config: Config, pipeline: Pipeline, reader: Reader) -> AsyncIterator[Finding]:
    name, recipe = pipeline.namespace, pipeline.load_recipe()
    subject = f"namespace {name}"
    meta = Shard(name, 0).meta
    digest, maker, layout = await reader.command(meta, "HMGET", meta, "digest", "recipe", "layout")
    if layout is None:
        yield ok(subject, f"is new; the first worker makes it, with recipe {recipe.name}")
        return
    try:
        stamp = read_stamp(name, meta, layout)
    except IndexRefused as failed:
        yield error(subject, str(failed))
        return
    if (digest or b"").decode("utf-8", "backslashreplace") != recipe.digest:
        theirs = (maker or b"?").decode("utf-8", "backslashreplace")
        text = (
            f"was made with another recipe ({theirs}) than {recipe.name} ({recipe.digest}); give "
            "that recipe, or another namespace"
        )
        yield error(subject, text)
        return
    if stamp.shards != config.index.shards:
        text = f"was made with {stamp.shards} shard(s), and index.shards is {config.index.shards}"
        yield error(subject, f"{text}; give that number, or another namespace")
        return
    settings = describe(pipeline.windows(), pipeline.summaries(), config.index.limits())
    yield ok(subject, f"was made with this recipe, {recipe.name} ({recipe.digest})")
    for sentence in await compare_settings(reader, name, settings):
        yield warning(subject, sentence)
