"""Prometheus starts, scrapes itself, answers and says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.debian import find_program
from tests.services.processes import ServiceError, wait_until
from tests.services.prometheus import Prometheus, promtool

JOB = {"job_name": "itself", "scrape_interval": "1s"}


def test_it_scrapes_and_answers() -> None:
    with Prometheus({}) as first:
        target = {"targets": [f"127.0.0.1:{first.port}"]}
        assert first.query("up") == []
        with Prometheus({"scrape_configs": [{**JOB, "static_configs": [target]}]}) as second:
            wait_until(lambda: bool(second.query("up == 1")), what="the other one is scraped")
            (sample,) = second.query('up{job="itself"}')
            assert (sample.labels["instance"], sample.value) == (f"127.0.0.1:{first.port}", 1)
            assert second.get("label/job/values", match="up") == ["itself"]
            assert second.query("3 + 4")[0].value == 7


def test_an_invalid_query_is_refused_with_the_reason() -> None:
    with Prometheus({}) as server, pytest.raises(ServiceError, match="parse error"):
        server.query("sum(")


def test_a_configuration_that_is_none_shows_the_log() -> None:
    with (
        pytest.raises(ServiceError, match=r"(?s)process ended.*no_such_key"),
        Prometheus({"no_such_key": 1}),
    ):
        pass


def test_promtool_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("groups: [{name: a, rules: [{alert: B, expr: sum(}]}]\n")
    done = promtool("check", "rules", "rules.yaml", directory=tmp_path)
    assert done.returncode != 0
    assert "parse error" in done.stdout + done.stderr


def test_an_error_names_the_program_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without apt-get too
    wanted = r"a graph is drawn: install draw.*apt-get install graphics"
    with pytest.raises(pytest.fail.Exception, match=wanted):
        find_program("draw", "graphics", "a graph is drawn")
