"""The configuration: who wins, what is refused and why, and that secrets stay secret."""

from __future__ import annotations

import asyncio
import json
import math
import os
import ssl
import string
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.config import (
    Config,
    IndexConfig,
    KafkaConfig,
    Loaded,
    PipelineConfig,
    load,
)
from stream_dedup.config.document import effective, effective_toml, keys, template
from stream_dedup.engine.engine import NEAR_CACHE_SIZE
from stream_dedup.errors import BrokerRefused, ConfigError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.redis.address import parse
from stream_dedup.index.redis.client import RetryPolicy
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.store import LIMITS
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.units import duration_text, read_duration_us, read_size, size_text
from tests.services.certificates import make_certificates

PIPELINE = '[[pipelines]]\ntopics = ["in"]\noutput_topic = "out"\n'
SECOND = '[[pipelines]]\nname = "b"\ntopics = ["b"]\noutput_topic = "c"\n'
SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STREAM_DEDUP_REDIS", "STREAM_DEDUP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker.toml"


def loaded(file: Path, text: str = "", *settings: str, pipeline: str = PIPELINE) -> Loaded:
    """What a file with `text` and a pipeline gives."""
    file.write_text(f"{text}\n{pipeline}")
    return load(str(file), settings)


def refused(file: Path, text: str = "", *settings: str, pipeline: str = PIPELINE) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(file, text, *settings, pipeline=pipeline)
    return caught.value


def of(**values: Any) -> PipelineConfig:
    return PipelineConfig(**{"topics": ["in"], "output_topic": "out", **values})


# ------------------------------------------------------------ who wins


def test_flags_win_over_the_environment_over_the_file_over_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[kafka]\ngroup_id = "file"\nclient_id = "file"\nbootstrap_servers = ["file:1"]\n'
    monkeypatch.setenv("STREAM_DEDUP__KAFKA__GROUP_ID", "environment")
    monkeypatch.setenv("STREAM_DEDUP__KAFKA__CLIENT_ID", "environment")

    found = loaded(file, text, "kafka.group_id=flag")

    kafka = found.config.kafka
    assert (
        kafka.group_id, kafka.client_id, kafka.bootstrap_servers
    ) == ("flag", "environment", ("file:1",))  # fmt: skip
    assert kafka.start == "earliest"
    origins = found.origins
    assert origins["kafka.group_id"] == "--set"
    assert origins["kafka.client_id"] == "STREAM_DEDUP__KAFKA__CLIENT_ID"
    assert origins["kafka.bootstrap_servers"] == str(file)
    assert "kafka.start" not in origins


_word = st.text(string.ascii_letters, min_size=1)
_layers = st.fixed_dictionaries({}, optional={"file": _word, "environment": _word, "flag": _word})


@given(given_=_layers)
def test_the_uppermost_layer_that_gives_a_value_wins(
    tmp_path_factory: pytest.TempPathFactory, given_: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("config") / "worker.toml"
    text = f'[kafka]\nclient_id = "{given_["file"]}"' if "file" in given_ else ""
    flags = [f"kafka.client_id={given_['flag']}"] if "flag" in given_ else []
    with pytest.MonkeyPatch.context() as patch:
        if "environment" in given_:
            patch.setenv("STREAM_DEDUP__KAFKA__CLIENT_ID", given_["environment"])
        found = loaded(file, text, *flags)
    order = [given_[name] for name in ("flag", "environment", "file") if name in given_]
    assert found.config.kafka.client_id == (order or ["stream-dedup"])[0]


def test_the_environment_alone_makes_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DEDUP__PIPELINES__0__TOPICS", "a,b")
    monkeypatch.setenv("STREAM_DEDUP__PIPELINES__0__OUTPUT_TOPIC", "c")
    monkeypatch.setenv("STREAM_DEDUP__KAFKA__BOOTSTRAP_SERVERS", "k:1, k:2")
    config = load().config
    assert (
        config.pipelines[0].topics, config.kafka.bootstrap_servers
    ) == (("a", "b"), ("k:1", "k:2"))  # fmt: skip


def test_pipelines_as_json_replace_those_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [{"name": "x", "topics": ["a"], "output_topic": "b"}]
    monkeypatch.setenv("STREAM_DEDUP__PIPELINES", json.dumps(made))
    below = f"{PIPELINE}emit = 'drop'\n{SECOND}"
    found = loaded(file, "", "pipelines.x.samples=7", pipeline=below)
    (pipeline,) = found.config.pipelines
    assert pipeline.emit == "merge"
    assert (pipeline.name, pipeline.topics, pipeline.samples) == ("x", ("a",), 7)


@pytest.mark.parametrize("which", ["1", "Audit", "audit"])
def test_a_pipeline_is_addressed_by_number_or_name(file: Path, which: str) -> None:
    second = '[[pipelines]]\nname = "Audit"\ntopics = ["a"]\noutput_topic = "b"\nnamespace = "n"\n'
    found = loaded(file, "", f"pipelines.{which}.topics=x,y", pipeline=PIPELINE + second)
    assert [each.topics for each in found.config.pipelines] == [("in",), ("x", "y")]


def test_redis_is_taken_from_its_variable_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DEDUP_REDIS", "redis://other:1")
    text = '[index]\nurl = "redis://file:1"'
    assert str(loaded(file, text).config.index.address) == "redis://other:1"
    monkeypatch.setenv("STREAM_DEDUP__INDEX__URL", "redis://third:1")
    assert str(loaded(file, text).config.index.address) == "redis://third:1"


def test_a_configuration_made_directly_ignores_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAM_DEDUP__KAFKA__GROUP_ID", "environment")
    assert Config(pipelines=(of(),)).kafka.group_id == "stream-dedup"


# ------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5", 5), ("0.25", 0.25), ("'250ms'", 0.25), ("'60s'", 60), ("'1h'", 3600), ("'24h'", 86_400),
     ("'7'", 7), ("'off'", math.inf), ("'never'", math.inf)],
)  # fmt: skip
def test_durations_are_read(file: Path, written: str, seconds: float) -> None:
    found = loaded(file, pipeline=f"{PIPELINE}idle_s = {written}")
    assert found.config.pipelines[0].idle_s == seconds


@pytest.mark.parametrize("written", ["'1 hour'", "''", "'-5s'", "-5", "0", "true", "[]", "nan"])
def test_an_invalid_duration_is_refused(file: Path, written: str) -> None:
    error = refused(file, pipeline=f"{PIPELINE}idle_s = {written}")
    assert error.problems[0].key == "pipelines.0.idle_s"


@pytest.mark.parametrize("written", ["'off'", "inf", "'never'"])
def test_only_some_durations_may_be_off(file: Path, written: str) -> None:
    assert "worker.drain_s: may not be off" in str(refused(file, f"[worker]\ndrain_s = {written}"))


@pytest.mark.parametrize(
    ("written", "size"), [("'1MiB'", 1 << 20), ("'64 KiB'", 65_536), ("'1000'", 1000), ("9", 9)]
)
def test_sizes_are_read(file: Path, written: str, size: int) -> None:
    found = loaded(file, f"[worker]\nmax_batch_bytes = {written}")
    assert found.config.worker.max_batch_bytes == size


@pytest.mark.parametrize("written", ["'1 parsec'", "'0.3B'", "true", "1.5", "0", "'-1'"])
def test_an_invalid_size_is_refused(file: Path, written: str) -> None:
    error = refused(file, f"[worker]\nmax_batch_bytes = {written}")
    assert error.problems[0].key == "worker.max_batch_bytes"


@given(st.integers(0, 10**12))
def test_sizes_and_durations_are_written_as_they_are_read(number: int) -> None:
    assert read_size(size_text(number)) == number
    text = duration_text(number / 1000)
    assert pytest.approx(read_duration_us(text), rel=1e-9) == number * 1000


def test_the_defaults_are_those_of_the_parts() -> None:
    index = IndexConfig()
    assert index.limits() == LIMITS
    assert (RetryPolicy().timeout_s, RetryPolicy().within_s) == (index.timeout_s, index.within_s)
    assert index.near_cache_size == NEAR_CACHE_SIZE
    assert index.mirror_size == MIRROR_SIZE
    assert of().windows() == Windows()
    assert of().summaries() == Summaries()


def test_a_pipeline_gives_the_objects_of_the_domain() -> None:
    pipeline = of(
        format="json",
        text_field="m",
        time_field="t",
        time_format="epoch",
        group_fields="a,b",
        idle_s="off",
        summary_every_s="off",
        recipe="text",
    )
    assert pipeline.windows().idle_us == FOREVER_US
    assert pipeline.summaries().every_us is None
    assert pipeline.reading() == DecoderOptions("jsonl", "m", "t", "epoch", ("a", "b"))
    assert pipeline.load_recipe() == load_recipe("text")


@pytest.mark.parametrize(
    ("values", "summaries", "on_poison"),
    [
        ({}, "out", "pass"),
        ({"emit": "drop"}, "", "pass"),
        ({"emit": "drop", "summary_topic": "s"}, "s", "pass"),
        ({"summary_topic": ""}, "", "pass"),
        ({"dead_letter_topic": "d"}, "out", "dead_letter"),
        ({"dead_letter_topic": "d", "on_poison": "stop"}, "out", "stop"),
    ],
)
def test_what_is_left_out_follows_from_the_rest(
    values: dict[str, Any], summaries: str, on_poison: str
) -> None:
    (pipeline,) = Config(pipelines=(of(**values),)).pipelines
    assert (pipeline.summary_topic, pipeline.on_poison) == (summaries, on_poison)
    assert (pipeline.namespace, pipeline.group_id) == ("logs", "stream-dedup-main")
    assert KafkaConfig(group_id="audit").transactional_id_prefix == "audit"
    assert bool(summaries) == (pipeline.summaries().every_us is not None)


def test_files_are_relative_to_the_file_that_names_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file.parent / "own.toml").write_text("[match]\nk = 2\n")
    (file.parent / "password").write_text(f"{SECRET}\nanother line\n")
    monkeypatch.chdir("/")
    text = "[index]\npassword_file = 'password'"
    found = loaded(file, text, pipeline=f"{PIPELINE}recipe = 'own.toml'").config
    assert found.index.secret("password") == SECRET
    assert (found.pipelines[0].load_recipe().match.k, found.pipelines[0].namespace) == (2, "own")


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("emit=merg", "pipelines.0.emit: 'merg' is not one of annotate, drop, merge"),
        ("samples=-1", "pipelines.0.samples: '-1' is less than 0"),
    ],
)
def test_a_wrong_value_of_a_pipeline_is_one_error(file: Path, setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(file, "", f"pipelines.0.{setting}")
    assert str(caught.value).splitlines() == [f"--set: {message}"]


def test_without_any_setting_the_remedy_is_a_file() -> None:
    with pytest.raises(ConfigError, match=r"pipelines: missing; give a file \(--config\)"):
        load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[kafka]\nbootstrap_server = 'a'", "kafka.bootstrap_server: unknown key; did you mean"),
        ("[kafak]\ngroup_id = 'a'", "kafak: unknown key; did you mean 'kafka'?"),
        ("[http]\nxyzzy = 1", "http.xyzzy: unknown key; known keys: host, port"),
        ("[http]\nport = 70000", "http.port: 70000 is more than 65535"),
        ("[http]\nport = 'x'", "http.port: 'x' is not an integer"),
        ("http = 3", "http: is not a table with keys"),
        ("[log]\nlevel = 'loud'", "log.level: 'loud' is not one of debug, info, warning, error"),
        ("[kafka]\nbootstrap_servers = 'a b'", "kafka.bootstrap_servers: holds 'a b'; write"),
        ("[kafka]\nbootstrap_servers = 'a:99999'", "kafka.bootstrap_servers: holds 'a:99999'"),
        ("[kafka]\nbootstrap_servers = []", "kafka.bootstrap_servers: is empty"),
        ("[kafka]\nheartbeat_interval_s = 30", "kafka.heartbeat_interval_s: is more than half of"),
        ("[kafka]\nsession_timeout_s = 1", "kafka.session_timeout_s: is less than twice"),
        ("[kafka]\nsasl_username = 'a'", "kafka.sasl_username: is given, but security_protocol"),
        ("[kafka]\nsecurity_protocol = 'SASL_SSL'", "kafka.sasl_username: missing, though"),
        ("[kafka]\nssl_ca_file = 'a'", "kafka.ssl_ca_file: is given, but security_protocol"),
        ("[index]\nurl = 'http://x'", "index.url: cannot be read; a Redis URL begins with one of"),
        ("[index]\nca_file = 'x'", "index.ca_file: is given, but redis://127.0.0.1:6379 is"),
        ("[index]\nshards = 0", "index.shards: 0 is less than 1"),
        ("[worker]\ndrain_s = '5m'", "worker.drain_s: is not below kafka.max_poll_interval_s"),
        ("[worker]\nguarantee = 'exactly_once'\n[index]\nkind = 'memory'",
         "worker.guarantee: is exactly_once, but index.kind is memory: what it holds is gone"),
        ("[worker]\nguarantee = 'exactly_once'\n[kafka]\nisolation = 'read_uncommitted'",
         "kafka.isolation: is read_uncommitted, but worker.guarantee is exactly_once"),
        ("[index]\nshard_by = 'fingerprint'",
         "index.shard_by: is fingerprint, but index.shards is 1"),
        ("[index]\nshard_by = 'fingerprint'\nkind = 'memory'\nshards = 2",
         "index.shard_by: is fingerprint, but index.kind is memory, which has no shards"),
        ("[index]\nshard_by = 'fingerprint'\nshards = 2",
         "pipelines.0.recipe: is 'logs', which cannot be used with index.shard_by fingerprint"),
    ],
)  # fmt: skip
def test_an_error_names_file_key_problem_and_remedy(file: Path, text: str, message: str) -> None:
    assert f"{file}: {message}" in str(refused(file, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing; add a table [[pipelines]] with topics and output_topic"),
        ("pipelines = []", "pipelines: is empty; add a table [[pipelines]]"),
        ("[[pipelines]]\ntopics = ['a']", "pipelines.0.output_topic: missing; give the topic"),
        ("[[pipelines]]\ntopics = []\noutput_topic = 'a'", "pipelines.0.topics: is empty"),
        (f"{PIPELINE}name = '-'", "pipelines.0.name: '-' is not a name; give up to 63 letters"),
        (f"{PIPELINE}summary_topic = 'in'", "summary_topic: is 'in', which is read from"),
        (f"{PIPELINE}dead_letter_topic = 'out'", "dead_letter_topic: is an output topic too"),
        (f"{PIPELINE}dead_letter_topic = 'a b'", "dead_letter_topic: holds 'a b'; a topic has"),
        (f"{PIPELINE}on_poison = 'dead_letter'", "on_poison: is dead_letter, but no dead_letter"),
        (f"{PIPELINE}recipe = 'lgos'", "0.recipe: is refused: lgos: no such recipe; use"),
        (f"{PIPELINE}recipe = 'letters5'", "is 5, which is to be looked at only: no index holds"),
        (f"{PIPELINE}namespace = 'a b'", "pipelines.0.namespace: is refused: namespace 'a b' is"),
        (f"{PIPELINE}group_regex = '[a-z]+'", "0.group_regex: group pattern '[a-z]+' has"),
        (f"{PIPELINE}group_regex = 'a('", "0.group_regex: group pattern 'a(' is not RE2"),
        (f"{PIPELINE}time_format = '%Y'", "0.time_format: time format '%Y' has no time"),
        (f"{PIPELINE}format = 'text'\ntext_field = 'm'", "text_field: names JSON fields, but"),
        (f"{PIPELINE}group_fields = 'a'\ngroup_regex = '(?P<a>b)'", "group_regex: and"),
        (f"{PIPELINE}annotate_into = 'json'", "annotate_into: is json, but emit is merge"),
        (PIPELINE + PIPELINE, "pipelines.1.name: is 'main' twice; name each differently"),
        (f"{PIPELINE}{PIPELINE}name = 'b'", "1.topics: holds 'in', which pipeline 'main'"),
        (f"{PIPELINE}{PIPELINE}name = 'b'\nnamespace = 'x'\ngroup_id = 'stream-dedup-main'",
         "pipelines.1.group_id: is 'stream-dedup-main', as that of pipeline 'main'"),
        (f"{PIPELINE}{SECOND}recipe = 'text'\nnamespace = 'logs'",
         "pipelines.1.namespace: is 'logs', as that of pipeline 'main', but the recipes differ"),
        (f"{PIPELINE}{SECOND}namespace = 'logs'\npattern_topic = 'p'",
         "pipelines.1.pattern_topic: is 'p', but '' of pipeline 'main', which shares its"),
        (f"{PIPELINE}[[pipelines]]\nname = 'b'\ntopics = ['out']\noutput_topic = 'in'",
         "pipelines: make a loop of topics: in -> out -> in; events would go round for ever"),
    ],
)  # fmt: skip
def test_a_pipeline_that_cannot_work_is_refused(file: Path, text: str, message: str) -> None:
    assert message in str(refused(file, pipeline=text))


def test_all_problems_are_reported_at_once(file: Path) -> None:
    error = refused(file, "[http]\nport = 'x'\n[log]\nlevel = 'y'", "worker.ahead_batches=0")
    assert [p.key for p in error.problems] == ["worker.ahead_batches", "http.port", "log.level"]
    assert [each.place for each in error.problems] == ["--set", str(file), str(file)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("STREAM_DEDUP__KAFKA__GRUOP_ID", "kafka.gruop_id: unknown key; did you mean 'group_id'?"),
        ("STREAM_DEDUP__KAFAK__GROUP_ID", "means no setting; write STREAM_DEDUP__KAFKA__..."),
        ("STREAM_DEDUP__PIPELINES__MIAN__TOPICS", "no pipeline is named 'mian'; give its number"),
        ("STREAM_DEDUP__PIPELINES__5__TOPICS", "pipelines.5: there is no pipelines.1 before it"),
        ("STREAM_DEDUP__PIPELINES", "pipelines: is not JSON; write a JSON list of objects"),
        ("STREAM_DEDUP__KAFKA", "means no setting; write STREAM_DEDUP__KAFKA__..."),
        ("STREAM_DEDUP__KAFKA____X", "means no setting; write STREAM_DEDUP__KAFKA__..."),
    ],
)
def test_a_variable_that_means_nothing_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setenv(name, f"{{{SECRET}")
    error = refused(file)
    assert f"{name}: " in str(error)
    assert message in str(error)
    assert SECRET not in _everything(error)


def test_a_password_in_a_section_not_enabled_is_hidden(file: Path) -> None:
    endpoint = f"http://user:{SECRET}@host:4318/v1"
    found = loaded(file, f"[otel]\nendpoint = '{endpoint}'\ntraces_endpoint = '{endpoint}'")
    shown = {key: value for key, value, _ in effective(found)}
    assert shown["otel.endpoint"] == "http://**********@host:4318/v1"
    assert SECRET not in effective_toml(found) + str(shown)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STREAM_DEDUP_KAFKA__GROUP_ID", "STREAM_DEDUP__KAFKA__GROUP_ID"),
        ("STREAM_DEDUP_KAFKA_GROUP_ID", "STREAM_DEDUP__KAFKA__GROUP_ID"),
        ("STREAM_DEDUP_KAFKA__GRUOP_ID", "STREAM_DEDUP__KAFKA__..."),
        ("stream_dedup_index___password_file", "STREAM_DEDUP__INDEX__PASSWORD_FILE"),
        ("STREAM_DEDUP_PIPELINES_0_OUTPUT_TOPIC", "STREAM_DEDUP__PIPELINES__0__OUTPUT_TOPIC"),
        ("STREAM_DEDUP_PIPELINES__MAIN__EMIT", "STREAM_DEDUP__PIPELINES__MAIN__EMIT"),
    ],
)
def test_a_variable_with_wrong_underscores_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, SECRET)
    error = refused(file)
    assert str(error) == (
        f"{name}: means no setting; write {meant}, with two underscores between its parts"
    )


def test_variables_of_kubernetes_services_are_left_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DEDUP_HTTP_PORT", "tcp://10.0.0.7:9464")
    monkeypatch.setenv("STREAM_DEDUP_KAFKA_SERVICE_HOST", "10.0.0.8")
    monkeypatch.setenv("STREAM_DEDUP_KAFKA_PORT_9092_TCP_ADDR", "10.0.0.8")
    assert loaded(file).config.http.port == 9464


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("kafka.group_id", "--set: a setting is not a key and a value; write --set KEY=VALUE"),
        ("=x", "is not a key and a value"),
        ("kafka..x=1", "--set: kafka..x is not a key and a value"),
        ("kafka.client_id=\udcff", "--set: kafka.client_id: is not UTF-8"),
        ("pipelines.nobody.topics=a", "--set: pipelines.nobody.topics: no pipeline is named"),
        ("kafka=x", "kafka: "),
        ("kafka.group_id.x=1", "kafka.group_id: is not a table"),
    ],
)
def test_a_flag_that_means_nothing_is_refused(file: Path, setting: str, message: str) -> None:
    assert message in str(refused(file, "[kafka]\ngroup_id = 'a'", setting))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory); check path"),
        (b"[kafka", "not TOML: "),
        (b"\xff", "not TOML in UTF-8; save it as UTF-8"),
        (b"#" * (1 << 20) + b"#", "larger than 1 MiB"),
        (b"a = " + b"[" * 5_000, "not TOML: "),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(
    file: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    assert f"{file}: {message}" in str(caught.value)


def test_a_folder_is_not_a_file(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read \\(Is a directory\\); check path"):
        load(str(file.parent))


def test_a_configuration_is_read_from_a_pipe() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader):
        with os.fdopen(writer, "w") as pipe:
            pipe.write(PIPELINE)
        assert load(f"/dev/fd/{reader}").config.pipelines[0].topics == ("in",)


def test_sections_are_frozen() -> None:
    for part in (KafkaConfig(), Config(pipelines=(of(),))):
        with pytest.raises(ValidationError):
            setattr(part, next(iter(type(part).model_fields)), "x")


_keys = st.sampled_from(
    ["kafka", "group_id", "pipelines", "0", "1", "topics", "main", "index", "url", "http", "port"]
)
_values = st.sampled_from(
    ["1", "-1", "true", "[]", "{}", "'x'", '"x"', "a,b", "", "[", "redis://[", "off", "\udcff"]
)


@given(
    st.lists(st.tuples(st.lists(_keys, min_size=1, max_size=3).map(".".join), _values), max_size=3)
)
def test_flags_give_a_configuration_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, flags: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "flags.toml"
    try:
        found = loaded(file, "", *(f"{key}={value}" for key, value in flags))
    except ConfigError as error:
        assert all(each.problem for each in error.problems)  # noqa: PT017
    else:
        assert effective_toml(found)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*Config.model_fields, "other"]), _json, max_size=4))
def test_any_document_gives_a_configuration_or_a_reason(document: dict[str, Any]) -> None:
    # JSON nulls do not exist in TOML, but come out of STREAM_DEDUP__PIPELINES.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in document.items():
            patch.setenv(f"STREAM_DEDUP__{name.upper()}", json.dumps(value))
        try:
            load()
        except ConfigError as error:
            assert all(each.problem for each in error.problems)  # noqa: PT017


# ------------------------------------------------------------ secrets


def _everything(error: BaseException) -> str:
    """All that a log of an error could show."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


SECRETS = [(key.section, key.name) for key in keys() if key.type == "secret"]


def secure(secret: str) -> Iterator[tuple[str, str]]:
    """Settings that hold a secret in every place there is."""
    yield "kafka.security_protocol", "SASL_SSL"
    yield "kafka.sasl_username", "user"
    yield from ((f"{section}.{name}", secret) for section, name in SECRETS)


def test_every_secret_is_known() -> None:
    assert {
        ("kafka", "sasl_password"),
        ("kafka", "ssl_key_password"),
        ("index", "password"),
        ("index", "sentinel_password"),
        ("otel", "headers"),
    } == set(SECRETS)


_secret = st.text(string.ascii_letters + string.digits + "!#$%&*+-:<>?@^_~", min_size=8)


@given(secret=_secret.map("~!".__add__))  # else it may be a part of the name of a class
def test_a_secret_is_shown_nowhere(tmp_path_factory: pytest.TempPathFactory, secret: str) -> None:
    file = tmp_path_factory.getbasetemp() / "secrets.toml"
    found = loaded(file, "", *(f"{key}={value}" for key, value in secure(secret)))
    config = found.config
    shown = [repr(config), str(config), repr(found), effective_toml(found), str(config.warnings())]
    shown += [repr(config.kafka), repr(config.index), repr(config.index.address)]
    shown += [repr(config.otel)]
    shown += [str(list(effective(found))), str(config.model_dump()), config.model_dump_json()]
    assert [text for text in shown if secret in text] == []
    assert [getattr(config, section).secret(name) for section, name in SECRETS] == [secret] * 5
    assert parse(config.index.redis_url).password == secret
    assert config.kafka.client_options()["sasl_plain_password"] == secret


@pytest.mark.parametrize(
    "text",
    [
        f"[kafka]\nsasl_pasword = '{SECRET}'",
        f"[kafka]\nsasl_password = ['{SECRET}']",
        f"[kafka]\nsasl_password = '{SECRET}'",
        f"[kafka]\nsasl_password = '{SECRET}'\nsasl_password_file = 'x'",
        f"[kafka.sasl_password]\na = '{SECRET}'",
        f"[index]\nurl = 'redis://u:{SECRET}/@host:1'",
        f"[index]\nurl = 'redis://u:{SECRET}@host:1'\npassword = 'x'",
        f"[index]\nurl = ['{SECRET}']",
        f"[index]\nurl = 'http://u:{SECRET}@h'",
        f"[index]\nurl = 'redis://u:{SECRET}@h'\nca_file = 'x'",
        f"[index]\npassword = '{SECRET}'\nshards = 0",
        f"[kafka]\nbootstrap_servers = ['u:{SECRET}@host:9092']",
        f"[kafka]\nbootstrap_servers = ['kafka://u:{SECRET}/x@host:9092']",
        f"[kafka]\nstart = 'kafka://u:{SECRET}@host:9092'",
        f"[http]\nport = 'http://u:{SECRET}@host'",
        f"[otel]\nenabled = true\nprotocol = 'http://u:{SECRET}@host'",
    ],
)
def test_an_error_repeats_no_secret(file: Path, text: str) -> None:
    error = refused(file, text)
    assert SECRET not in _everything(error)
    assert f"[{error.problems[0].key.partition('.')[0]}" in text


def test_a_section_made_directly_repeats_no_secret() -> None:
    with pytest.raises(ValidationError) as caught:
        KafkaConfig(sasl_password=SecretStr(SECRET))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("password", ["p@ss/w:rd%20#?", "ü€", " "])
def test_a_password_is_put_into_the_url(tmp_path: Path, password: str) -> None:
    file = tmp_path / "password"
    file.write_text(password + "\n", "utf-8")
    for url in ("redis://me@h:1/2", "redis+sentinel://me@a,b/name", "unix://me@/run/redis.sock"):
        index = IndexConfig(url=SecretStr(url), password_file=str(file))
        address = parse(index.redis_url)
        assert (address.username, address.password) == ("me", password)
        assert address[:5] == parse(url)[:5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory); check path and permissions"),
        (b"", "whose first line is empty"),
        (b"\nsecret", "whose first line is empty"),
        (b"\xff\n", "which is not UTF-8"),
        (b"x" * 70_000, "which is larger than 64 KiB"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(
    file: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (file.parent / "password").write_bytes(content)
    error = refused(file, "[index]\npassword_file = 'password'")
    assert error.problems[0].key == "index.password_file"
    assert message in str(error)


def test_an_empty_secret_is_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DEDUP__INDEX__PASSWORD", "")
    (file.parent / "password").write_text(SECRET)
    found = loaded(file, "[index]\npassword_file = 'password'").config.index
    assert found.secret("password") == SECRET
    assert IndexConfig().redis_url == "redis://127.0.0.1:6379"


# ------------------------------------------------------------ what people see


def test_the_template_can_be_used_as_it_is(file: Path) -> None:
    file.write_text(template())
    found = load(str(file))
    made = PipelineConfig(topics=("logs",), output_topic="logs-deduplicated")
    assert found.config == Config(pipelines=(made,))
    assert set(found.origins) == {"pipelines.0.topics", "pipelines.0.output_topic"}


def test_what_the_template_comments_out_are_the_defaults(file: Path) -> None:
    text = template()
    file.write_text(text)
    before = load(str(file)).config
    lines = text.splitlines()
    names = {key.name for key in keys()}
    uncommented = [
        line[2:] if line.startswith("# ") and line[2:].partition(" = ")[0] in names else line
        for line in lines
    ]
    assert len(list(keys())) - 2 == sum(map(str.__ne__, lines, uncommented))
    file.write_text("\n".join(uncommented))
    assert load(str(file)).config == before


def test_what_is_shown_is_the_configuration(file: Path) -> None:
    found = loaded(file, "[worker]\nbatch_wait_s = 0.005", "log.level=DEBUG")
    shown = effective_toml(found)
    assert 'batch_wait_s = "5ms"' in shown
    file.write_text(shown)
    assert load(str(file)).config == found.config
    rows = {key: (value, origin) for key, value, origin in effective(found)}
    assert rows["log.level"] == ("debug", "--set")
    assert rows["pipelines.0.group_id"] == ("stream-dedup-main", "default")
    assert len(list(keys())) == len(rows)


# ------------------------------------------------------------ the driver's options


def test_the_driver_takes_the_options() -> None:
    kafka = KafkaConfig(group_instance_id="a", compression="zstd", request_timeout_s=1.5)
    options = kafka.consumer_options()
    assert (
        options["request_timeout_ms"], options["session_timeout_ms"], options["isolation_level"]
    ) == (1500, 45_000, "read_committed")  # fmt: skip

    async def make() -> None:
        await AIOKafkaConsumer(group_id="g", **options).stop()
        await AIOKafkaProducer(**kafka.producer_options()).stop()

    asyncio.run(make())
    assert KafkaConfig().consumer_options()["group_instance_id"] is None
    assert KafkaConfig().producer_options()["compression_type"] == "lz4"
    assert KafkaConfig(compression="none").producer_options()["compression_type"] is None


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "tls")
    protocol: Any = {"security_protocol": "SSL"}
    good = KafkaConfig(
        **protocol,
        ssl_ca_file=str(files.ca_file),
        ssl_cert_file=str(files.cert_file),
        ssl_key_file=str(files.key_file),
        ssl_check_hostname=False,
    )
    context = good.client_options()["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    junk = tmp_path / "junk"
    junk.write_text("nothing")
    cases: dict[str, Any] = {
        "ssl_ca_file": {"ssl_ca_file": str(junk)},
        "ssl_key_file": {"ssl_cert_file": str(files.cert_file), "ssl_key_file": "/nowhere"},
        "ssl_cert_file": {"ssl_cert_file": str(files.cert_file), "ssl_key_file": str(junk)},
    }
    for name, wrong in cases.items():
        with pytest.raises(BrokerRefused, match=f"kafka.{name}: "):
            KafkaConfig(**protocol, **wrong).client_options()
