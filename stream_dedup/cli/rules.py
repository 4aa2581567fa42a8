"""``stream-dedup rules``: lasting decisions about patterns, in a file or a namespace."""

from __future__ import annotations

import getpass
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from stream_dedup.cli.common import (
    connection_options,
    recipe_option,
    run_on_redis,
    shown,
    worker_extra,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.group import Group
from stream_dedup.cli.terminal import note
from stream_dedup.clock import SystemClock
from stream_dedup.emit.summaries import iso_time
from stream_dedup.errors import RuleError
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.io.files import whole_file
from stream_dedup.rules import file as rules_file
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import MAX_NAME, PatternRule, RuleKind, Undoing
from stream_dedup.rules.template import words_shown_as_variables

if TYPE_CHECKING:
    from stream_dedup.index.redis.client import RedisClient
    from stream_dedup.index.redis.rules import RedisRules

MAX_SHOWN = 400
"""Characters shown of a pattern."""

F = TypeVar("F", bound=Callable[..., Any])

rules_option = click.option(
    "--rules",
    "rules_path",
    metavar="FILE",
    shell_complete=complete_file,
    help="Rules about patterns, a TOML file (see: stream-dedup rules --help).",
)


class Place(Protocol):
    """Where rules are kept."""

    def read(self) -> RuleBook:
        """Read them."""

    def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        """Read them, edit them, and write them unless somebody else has meanwhile."""


class FilePlace:
    """Rules in a file; one that is not there holds none."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> RuleBook:
        return read_rules(self._path, missing=RuleBook())

    def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        edited = edit(self.read())
        with whole_file(self._path) as out:
            out.write(rules_file.written(edited.rules).encode())
        return edited


def read_rules(path: str, *, missing: RuleBook | None = None) -> RuleBook:
    """Read rules from a file.

    Raises:
        RuleError: it cannot be read, or a rule is wrong.
    """
    name = shown(path.encode("utf-8", "surrogateescape"), 200)
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(rules_file.MAX_BYTES + 1)
        return rules_file.read(data.decode(), name)
    except FileNotFoundError as error:
        if missing is not None:
            return missing
        problem = error.strerror or "cannot be read"
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "is not UTF-8"
    raise RuleError(name, "", f"cannot be read ({problem})", "give a file of rules")


class RedisPlace:
    """Rules of a namespace in Redis.

    Args:
        namespace: the namespace.
        options: those of `connection_options`.
    """

    def __init__(self, namespace: str, options: dict[str, Any]) -> None:
        self._namespace = namespace
        self._options = options

    def read(self) -> RuleBook:
        return self._run(lambda rules: rules.read())

    def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        async def change(rules: RedisRules) -> RuleBook:
            book = await rules.change(edit)
            if not await rules.has_namespace():
                namespace = self._namespace
                note(f"no worker has used namespace {namespace} yet: the rules wait for the first")
            return book

        return self._run(change)

    def _run(self, work: Callable[[RedisRules], Awaitable[RuleBook]]) -> RuleBook:
        with worker_extra():
            from stream_dedup.index.redis.rules import RedisRules  # noqa: PLC0415 -- an extra

        async def on(client: RedisClient) -> RuleBook:
            try:
                rules = RedisRules(client, self._namespace)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            return await work(rules)

        return run_on_redis(self._options, on)


def _place(options: dict[str, Any]) -> Place:
    file, namespace = options["file"], options["namespace"]
    if bool(file) == bool(namespace):
        raise click.UsageError("where are the rules? give --rules FILE or --namespace NAME")
    return FilePlace(file) if file else RedisPlace(namespace, options["options"])


def _read(options: dict[str, Any]) -> RuleBook:
    """Read rules that must be there, unlike those that a command adds to."""
    place = _place(options)
    return read_rules(options["file"]) if options["file"] else place.read()


def place_options(function: F) -> F:
    """Add the options that say where rules are."""
    file = click.option(
        "--rules",
        "--file",  # its only name once
        "file",
        metavar="FILE",
        shell_complete=complete_file,
        help="Rules in a TOML file.",
    )
    namespace = click.option(
        "-n", "--namespace", metavar="NAME", help="Rules of workers: their namespace in Redis."
    )
    decorated: Any = file(namespace(connection_options(function)))
    return cast("F", decorated)


def _who_options(function: F) -> F:
    for option in (
        click.option("--reason", default="", help="Why; stored with it."),
        click.option("--author", default="", help="Who; by default the user of this machine."),
    ):
        function = option(function)
    return function


def author_of(given: str) -> str:
    """Return the author that is given, or the user of this machine."""
    if given:
        return given
    try:
        return getpass.getuser()[:MAX_NAME]
    except (OSError, KeyError):
        return ""


def _note_unmatched(rules: Sequence[PatternRule], recipe: Recipe) -> None:
    """Say which patterns no event can match, as it shows a placeholder in the place of a word."""
    patterns = Patterns(recipe)
    for rule in rules:
        for pattern in rule.patterns:
            for word in words_shown_as_variables(pattern, patterns):
                note(
                    f"rule {_printable(rule.id)}: events of recipe {recipe.name} show a "
                    f"placeholder for {_printable(word)!r}, so none matches "
                    f"{_printable(pattern)!r}; write <*> there, and for a single value make the "
                    "rule split"
                )


@click.group(cls=Group)
def rules() -> None:
    """Make lasting decisions about patterns: merge, keep apart, name, mute, limit.

    A rule is about patterns as dedup, index and summaries show them: words, and slots such as <*>
    or <number>. It holds for all events of the pattern that follow, also after the cluster that
    showed it is gone. What was counted before stays where it was counted.

    \b
    merge PATTERN PATTERN…                  their events are one cluster
    never_merge PATTERN PATTERN…            their events are never one cluster
    split PATTERN --slot 1 --value root     events with that value are a cluster of their own
    always_variable PATTERN --value WORD    events that differ only there are one cluster
    never_variable PATTERN --slot 1         events that differ there are never one cluster
    name PATTERN --value NAME               summaries name it
    mute PATTERN                            repeats are not written; they are counted
    keep PATTERN --per-minute 10            at most so many are written a minute; all are counted

    Slots are counted from 1; placeholders side by side are one slot. A pattern that ends in " …"
    stands for all events that begin so; every other one stands for whole events, with the time
    before the message (<timestamp> …). Where several patterns of merge and always_variable match
    an event, the one with the most words decides. Keeping apart is stronger than merging; rules
    that contradict each other are refused.

    Rules are in a file (--rules), which dedup reads with the same option, or in the namespace of
    workers (--namespace), which apply them within two seconds. If two people change the rules
    of a namespace at the same time, neither overwrites what the other has done.

    \b
    stream-dedup rules add merge "job <*> ended" "task <*> ended" --rules rules.toml
    stream-dedup dedup --rules rules.toml app.log
    stream-dedup rules import rules.toml --namespace logs
    stream-dedup rules audit --namespace logs

    Exit codes: 0 done; 1 the file cannot be written; 2 a rule is wrong or contradicts another, or
    the server cannot be reached or refuses.
    """


@rules.command("list")
@place_options
@click.option("--all", "every", is_flag=True, help="List rules that were undone, too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="json is a list.")  # fmt: skip
def list_rules(every: bool, form: str, **options: Any) -> None:  # noqa: ANN401 -- as click passes them
    """List the rules that act."""
    book = _read(options)
    found = book.rules if every else book.acting()
    if form == "json":
        click.echo(json.dumps([_object(rule) for rule in found], indent=2))
        return
    for rule in found:
        click.echo(_line(rule))


@rules.command("add")
@click.argument("kind", type=click.Choice([kind.value for kind in RuleKind]), metavar="KIND")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@place_options
@click.option(
    "--slot",
    type=int,
    default=0,
    metavar="N",
    help="The variable, counted from 1 (split, never_variable).",
)
@click.option(
    "--value", default="", help="The value (split), the word (always_variable) or the name (name)."
)
@click.option(
    "--per-minute", type=int, default=0, metavar="N", help="Events written a minute (keep)."
)
@_who_options
@recipe_option
def add_rule(kind: str, patterns: tuple[str, ...], recipe: str, **options: Any) -> None:  # noqa: ANN401
    """Add a rule about one PATTERN, or several to merge or keep apart.

    A message says if no event of the recipe can match a pattern, because events show a placeholder
    in the place of one of its words: "job 7 ended" is shown as "job <number> ended".
    """
    of_events = load_recipe(recipe)
    rule = PatternRule(
        RuleKind(kind),
        patterns,
        options["slot"],
        options["value"],
        author_of(options["author"]),
        SystemClock().now_us(),
        options["reason"],
        per_minute=options["per_minute"],
    )
    _place(options).change(lambda book: book.add(rule))
    click.echo(_line(rule))
    _note_unmatched([rule], of_events)


@rules.command("undo")
@click.argument("rule_id", metavar="ID")
@place_options
@_who_options
def undo_rule(rule_id: str, **options: Any) -> None:  # noqa: ANN401
    """Undo a rule: it no longer acts, and stays in the audit list."""
    undoing = Undoing(author_of(options["author"]), SystemClock().now_us(), options["reason"])
    _place(options).change(lambda book: book.undo(rule_id, undoing))
    click.echo(f"undone: {_printable(rule_id)}")


@rules.command("audit")
@place_options
def audit_rules(**options: Any) -> None:  # noqa: ANN401
    """List everything that was done, the oldest first: who, when and why."""
    for entry in _read(options).audit():
        by = f" by {_printable(entry.author)}" if entry.author else ""
        why = f": {_printable(entry.reason)}" if entry.reason else ""
        when = iso_time(entry.time_us) if entry.time_us else "at an unknown time"
        rule = _line(entry.rule).splitlines()[0]
        click.echo(f"{when} {entry.action}{by}{why}\n    {rule}")


@rules.command("export")
@place_options
@click.option("-o", "--output", default="-", metavar="FILE", show_default=True,
              help="The TOML file to write; - is standard output.")  # fmt: skip
def export_rules(output: str, **options: Any) -> None:  # noqa: ANN401
    """Write all rules as a TOML file, those that were undone included."""
    text = rules_file.written(_read(options).rules)
    with whole_file(output) as out:
        out.write(text.encode())


@rules.command("import")
@click.argument("source", metavar="RULES", shell_complete=complete_file)
@place_options
def import_rules(source: str, **options: Any) -> None:  # noqa: ANN401
    """Add the rules of a file RULES, and undo what is undone there.

    Rules that are there already are left as they are, so a file may be imported again and again,
    say whenever it changes in its repository.
    """
    theirs = read_rules(source)
    place = _place(options)
    before: list[RuleBook] = []

    def edit(book: RuleBook) -> RuleBook:
        before[:] = [book]
        return book.merged(theirs.rules)

    after = place.change(edit)
    undone = len(before[0].acting()) + len(after.rules) - len(before[0].rules) - len(after.acting())
    click.echo(f"{len(after.rules) - len(before[0].rules)} added, {max(undone, 0)} undone")


@rules.command("check")
@click.argument("source", metavar="RULES", shell_complete=complete_file)
@recipe_option
def check_rules(source: str, recipe: str) -> None:
    """Check a file RULES: exit code 2 if a rule is wrong, or two contradict each other.

    Patterns that no event of the recipe can match are named, as by "rules add".
    """
    of_events, book = load_recipe(recipe), read_rules(source)
    acting = book.acting()
    click.echo(f"{len(acting)} rules act, {len(book.rules) - len(acting)} were undone")
    _note_unmatched(acting, of_events)


def _line(rule: PatternRule) -> str:
    parts = [rule.id, rule.kind.value]
    if rule.slot:
        parts.append(f"slot {rule.slot}")
    if rule.per_minute:
        parts.append(f"{rule.per_minute:,} a minute")
    if rule.value:
        parts.append(repr(_printable(rule.value)))
    if rule.undone is not None:
        parts.append("(undone)")
    patterns = [_printable(pattern) for pattern in rule.patterns]
    return "\n    ".join((" ".join(parts), *patterns))


def _object(rule: PatternRule) -> dict[str, Any]:
    texts: dict[str, Any] = {
        "id": rule.id,
        "kind": rule.kind.value,
        "patterns": list(rule.patterns),
        "slot": rule.slot,
        "value": rule.value,
        "per_minute": rule.per_minute,
        "author": rule.author,
        "time": iso_time(rule.time_us),
        "reason": rule.reason,
        "undone": None,
    }
    if rule.undone is not None:
        author, time_us, reason = rule.undone
        texts["undone"] = {"author": author, "time": iso_time(time_us), "reason": reason}
    return texts


def _printable(text: str) -> str:
    return shown(text.encode("utf-8", "surrogateescape"), MAX_SHOWN)


def rules_of(path: str | None) -> Sequence[PatternRule]:
    """Return the rules of a file that an option names; none without."""
    return read_rules(path).acting() if path else ()
