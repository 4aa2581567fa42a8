"""Write the generated parts of the documentation: ``python -m docs.generate``.

Sources: the click commands for ``docs/cli.md`` and the manual pages in ``docs/man`` (`docs.man`),
`stream_dedup.metrics` for ``docs/metrics.md`` (`docs.metrics_page`), docstrings for ``docs/api.md``
(`docs.api_page`), `docs.dashboard` for the dashboard in ``deploy/grafana``, and the worker's models
for the schema of the Helm chart's values (`docs.helm_schema`). The outputs in the ``console``
blocks of all pages are written by running their commands.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from docs import man
from docs.api_page import API_PAGE, api_page
from docs.blocks import ROOT, pages, prepare, renewed, write
from docs.commands import EXIT_CODES, commands, options, usage, values_of
from docs.dashboard import DASHBOARD, dashboard_json
from docs.helm_schema import SCHEMA, schema_text
from docs.metrics_page import METRICS_PAGE, metrics_page
from stream_dedup.cli import main as command
from stream_dedup.config.document import keys, meaning_of

CLI_PAGE = ROOT / "docs" / "cli.md"
CONFIGURATION_PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
<!-- Written by `make docs` from the commands themselves: change their help, not this page. -->

# The command `stream-dedup`

Standard output carries data only; messages, statistics and the progress bar go to standard error.

A **DURATION** is a number with a unit: `500ms`, `90s`, `5m`, `1h`, `2d`; or `off`. A **PATH**
names a JSON field: keys joined by dots (`user.name`), or a JSON pointer if keys contain dots
(`/a.b/c`). **RE2** is the syntax of the [RE2 library](https://github.com/google/re2/wiki/Syntax),
whose time is linear in the text; it has no look-around and no back-references. **NAME|FILE** is
the name of a [shipped recipe](recipes.md#shipped-recipes) or the path of a TOML file.
"""

CONFIGURATION_HEAD = """\
<!-- Written by `make docs` from the sections' declarations: change them, not this page. -->

# The configuration of a worker

```toml
# stream-dedup.toml
[kafka]
bootstrap_servers = ["kafka-1:9092", "kafka-2:9092"]
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "stream-dedup"
sasl_password_file = "kafka-password"

[index]
url = "rediss://redis:6379"

[[pipelines]]
name = "app"
topics = ["app-logs"]
output_topic = "app-logs-merged"
dead_letter_topic = "app-logs-bad"
summary_every_s = "30s"
```

`stream-dedup config init` writes a file with every key, its default and its meaning; `config show`
shows the configuration that a worker would use, and the origin of each value; `config check` checks
it against Kafka, Redis and the collector (see [the commands](cli.md#stream-dedup-config)). These
commands need the extra: `pip install 'stream-dedup[worker]'`.

## Where values come from

The last of these sources that gives a value wins:

1. the default;
2. the TOML file: `--config FILE`, or the variable `STREAM_DEDUP_CONFIG`;
3. the environment: `STREAM_DEDUP__KAFKA__GROUP_ID=audit`;
4. flags: `--set kafka.group_id=audit`, as often as needed.

In the environment and in flags, a list is written with commas (`a,b`), and a pipeline is given by
its number or its name: `STREAM_DEDUP__PIPELINES__0__TOPICS=a,b`, `--set pipelines.app.topics=a,b`.
`STREAM_DEDUP__PIPELINES` may hold all pipelines, as a JSON list of objects; it replaces those of
the file. `STREAM_DEDUP_REDIS` gives `index.url`, unless `STREAM_DEDUP__INDEX__URL` does.

An unknown key, section or variable is an error, so that no typing error goes unnoticed.

## How values are written

- A **duration** is a number of seconds, or a text with a unit: `"250ms"`, `"60s"`, `"5m"`, `"1h"`,
  `"2d"`. Where a duration may be infinite, write `"off"` or `"never"`.
- A **size** is a number of bytes, or a text with a unit: `"64KiB"`, `"1MiB"`.
- The path of a **file**, or of a recipe, is relative to the folder of the configuration file. In
  the environment and in flags it is relative to the working directory.
- A **secret** is shown nowhere: not by `config show`, not in logs, not in errors. Beside each
  secret there is a key that ends in `_file`: the first line of that file is the secret. Give one of
  the two.

In the tables, the environment variable is shown without its prefix `STREAM_DEDUP__`.
"""


def cli_page() -> str:
    """The text of ``docs/cli.md``."""
    parts = [HEAD, "## Exit codes\n", _table(("code", "meaning"), EXIT_CODES)]
    for name, found in commands(command.cli, "stream-dedup"):
        parts.append(f"## {name}\n")
        parts.append(f"```sh\n{name} {usage(name, found)}\n```\n")
        parts += _prose(inspect.cleandoc(found.help or ""))
        rows = [_row(option) for option in options(found)]
        parts.append(_table(("option", "default", "meaning"), rows))
    return "\n".join(parts)


def configuration_page() -> str:
    """The text of ``docs/configuration.md``."""
    parts = [CONFIGURATION_HEAD]
    by_section: dict[str, list[tuple[str, ...]]] = {}
    for key in keys():
        variable = key.variable.removeprefix("STREAM_DEDUP__")
        default = f"`{key.default}`" if key.default else "required"
        meaning = key.meaning.replace("<", "\\<")
        row = (f"`{key.name}`", key.type, default, f"`{variable}`", meaning)
        by_section.setdefault(key.section, []).append(row)
    for section, rows in by_section.items():
        parts.append(f"## {section}\n\n{meaning_of(section)}\n")
        parts.append(_table(("key", "type", "default", "environment variable", "meaning"), rows))
    return "\n".join(parts)


def _row(option: click.Option) -> tuple[str, str, str]:
    value, default = values_of(option)
    name = " ".join(filter(None, (", ".join(sorted(option.opts, key=len)), value)))
    return f"`{name}`", f"`{default}`" if default else "", option.help or ""


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a help text; preformatted ones (after ``\\b``) become code blocks."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```sh\n{paragraph.strip(chr(8) + chr(10))}\n```\n"
        else:
            yield paragraph.strip() + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def main() -> None:
    """Write all generated parts that have changed."""
    write(CLI_PAGE, cli_page())
    write(CONFIGURATION_PAGE, configuration_page())
    write(METRICS_PAGE, metrics_page())
    write(API_PAGE, api_page())
    write(DASHBOARD, dashboard_json())
    write(SCHEMA, schema_text())
    man.main()
    for page in pages():
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            write(page, renewed(page, Path(folder)))


if __name__ == "__main__":
    main()
