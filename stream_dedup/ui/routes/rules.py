"""The pages of rules, and the forms that change them."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stream_dedup.errors import RuleConflict, StreamDedupError
from stream_dedup.rules.model import PatternRule
from stream_dedup.ui.deciding import NewRule, NewUndo
from stream_dedup.ui.routes.answers import Answers
from stream_dedup.ui.routes.rendering import Templates
from stream_dedup.ui.routes.requests import (
    converted,
    identity_of,
    number_of,
    page_of,
    read_fields,
    read_form,
)
from stream_dedup.ui.routes.rule_changes import RuleChanges
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.rules import audit_list, rule_list, rule_of


class RulePages:
    """Pages and forms of rules.

    Args:
        answers: has the sources.
        changes: of rules.
        templates: of all pages.
    """

    def __init__(self, answers: Answers, changes: RuleChanges, templates: Templates) -> None:
        self._answers = answers
        self._changes = changes
        self._templates = templates

    def routes(self) -> list[Route]:
        """The addresses."""
        return [
            Route("/r/{source}", self.rules, methods=["GET"]),
            Route("/r/{source}", self.add_rule, methods=["POST"]),
            Route("/r/{source}/undo", self.undo_rule, methods=["POST"]),
            Route("/r/{source}/audit", self.audit, methods=["GET"]),
        ]

    async def rules(self, request: Request) -> Response:
        """The rules that act."""
        source = self._answers.source(request)
        problem = await _read_rules(source)
        found = rule_list(source, page_of(request), changeable=self._changes.allowed(source))
        return self._templates.response(
            "rules.html", it=found, source=source, problem=problem,
            **self._changes.form(request, source),
        )  # fmt: skip

    async def audit(self, request: Request) -> Response:
        """What was done with rules."""
        source = self._answers.source(request)
        problem = await _read_rules(source)
        found = audit_list(source, page_of(request))
        return self._templates.response("audit.html", it=found, source=source, problem=problem)

    async def add_rule(self, request: Request) -> Response:
        """Add a rule, from a form."""
        source, form = self._answers.source(request), await read_fields(request)
        one = {name: values[-1] for name, values in form.items()}
        self._changes.check_form(request, source, one)
        given = {
            "kind": one.get("kind", ""),
            "patterns": [_pattern_named(source, text) for text in form.get("pattern", ())],
            **{name: number_of(one.get(name, "")) for name in ("slot", "per_minute")},
            **{name: one.get(name, "").strip() for name in ("value", "author", "reason")},
        }
        rule = self._changes.rule(request, converted(given, NewRule))
        try:
            await source.rules.change(lambda book: book.add(rule))
        except RuleConflict as conflict:
            return self._conflict(request, source, conflict, rule)
        return _seen_at(source, rule.id)

    async def undo_rule(self, request: Request) -> Response:
        """Undo a rule, from a form."""
        source = self._answers.source(request)
        form = await read_form(request)
        self._changes.check_form(request, source, form)
        given = {name: form.get(name, "").strip() for name in ("author", "reason")}
        undoing = self._changes.undoing(request, converted(given, NewUndo))
        try:
            await source.rules.change(lambda book: book.undo(form.get("id", ""), undoing))
        except RuleConflict as conflict:
            return self._conflict(request, source, conflict)
        return _seen_at(source)

    def _conflict(
        self,
        request: Request,
        source: Source,
        conflict: RuleConflict,
        new: PatternRule | None = None,
    ) -> Response:
        """Show the rules that contradict each other."""
        known = {rule.id: rule for rule in source.rules.book.rules}
        return self._templates.response(
            "conflict.html", HTTPStatus.CONFLICT, problem=str(conflict),
            rules=[rule_of(known[each]) for each in conflict.rules if each in known],
            new=None if new is None else rule_of(new), source=source,
            **self._changes.form(request, source),
        )  # fmt: skip


async def _read_rules(source: Source) -> str:
    """Read the rules if they have changed.

    Returns:
        Why they cannot be read now, where others were read before; empty if they can.

    Raises:
        StreamDedupError: they cannot be read, and none were read before.
    """
    try:
        await source.rules.refresh()
    except StreamDedupError as error:
        if not source.rules.is_known:
            raise
        return str(error)
    return ""


def _pattern_named(source: Source, text: str) -> str:
    """Return a pattern; the id of a cluster stands for that of the cluster."""
    entry = source.entry(identity_of(text.strip()))
    return entry.pattern if entry else text


def _seen_at(source: Source, rule: str = "") -> Response:
    """Redirect to the rules, where the new one is the first."""
    place = f"/r/{source.name}#{rule}" if rule else f"/r/{source.name}"
    return RedirectResponse(place, HTTPStatus.SEE_OTHER)
