"""The application: pages for people, and the same as JSON. It changes rules, and nothing else.

No address holds anything of an event, as addresses end in logs and histories: clusters are named
by their ids, and words to search for are sent in the body of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stream_dedup._version import __version__
from stream_dedup.clock import SystemClock, monotonic_s
from stream_dedup.errors import RuleConflict, RuleError, RulesChanged, StreamDedupError
from stream_dedup.rules.model import MAX_NAME, MAX_PER_MINUTE, PatternRule, RuleKind, Undoing
from stream_dedup.ui import openapi, views
from stream_dedup.ui.comparing import Chosen, sides_of
from stream_dedup.ui.deciding import Choices, NewRule, NewUndo, choices_of
from stream_dedup.ui.pairs import aligned
from stream_dedup.ui.patterns import Entry, Found, Query, choices, find_in_steps, neighbours, parts
from stream_dedup.ui.security import COOKIE, Access, Guard, problem_response
from stream_dedup.ui.sources import Source
from stream_dedup.volume.savings import PER_MINUTE, shown_size

REFRESH_S = 2.0
"""How often a page asks for news, at most."""

MAX_SHARE = 0.01
"""Of a core that finding one list again may take: a list that takes long is found less often."""

KINDS = {
    "js": "text/javascript", "css": "text/css", "txt": "text/plain", "svg": "image/svg+xml",
}  # fmt: skip
"""Types of static files."""

ID_DIGITS = 16
"""Of a cluster's id."""

RULE_KINDS = {
    RuleKind.MERGE: "Merge", RuleKind.SPLIT: "Split off", RuleKind.NEVER_MERGE: "Never merge",
    RuleKind.ALWAYS_VARIABLE: "Always a variable", RuleKind.NEVER_VARIABLE: "Never a variable",
    RuleKind.NAME: "Name", RuleKind.MUTE: "Mute", RuleKind.KEEP: "Keep some a minute",
}  # fmt: skip
"""What pages call them."""

MAX_RECORD = 20_000
"""Characters shown of a record."""

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class Lists:
    """Finds lists, and keeps each as long as the time to find it again is worth.

    A list of 10⁵ clusters takes some tenths of a second. It is found in steps, between which other
    requests are answered.

    Args:
        source: where.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[Query, tuple[float, Found]] = {}
        self._choices: tuple[float, tuple[list[str], list[str]]] = (0.0, ([], []))
        self._entries = source.entries
        self._finding = asyncio.Lock()

    async def find(self, query: Query) -> Found:
        """Find a list, or return that of a moment ago."""
        async with self._finding:  # whoever waited may find it here
            self._forget_others()
            now_s = monotonic_s()
            until_s, found = self._found.get(query, (0.0, None))
            if found is not None and now_s < until_s:
                return found
            found, took_s = await self._find(query)
            self._found = {each: kept for each, kept in self._found.items() if kept[0] > now_s}
            self._found[query] = monotonic_s() + max(REFRESH_S / 2, took_s / MAX_SHARE), found
            return found

    async def _find(self, query: Query) -> tuple[Found, float]:
        """Find a list; return it, and the time that it took."""
        source = self._source
        entries = list(source.entries.values())
        steps = find_in_steps(entries, query, source.axis, has_times=source.has_times)
        took_s = 0.0
        while True:
            begun_s = monotonic_s()
            try:
                next(steps)
            except StopIteration as done:
                return done.value, took_s
            finally:
                took_s += monotonic_s() - begun_s
            await asyncio.sleep(0)

    def choices(self) -> tuple[list[str], list[str]]:
        """The groups and levels to choose from."""
        self._forget_others()
        until_s, found = self._choices
        now_s = monotonic_s()
        if now_s >= until_s:
            found = choices(list(self._source.entries.values()))
            took_s = monotonic_s() - now_s
            # There are seldom others: among many clusters, looking for them takes less of a core.
            self._choices = now_s + max(REFRESH_S / 2, 5 * took_s / MAX_SHARE), found
        return found

    def _forget_others(self) -> None:
        """Forget what was found among entries that others have replaced."""
        if self._source.entries is not self._entries:
            self._entries = self._source.entries
            self._found.clear()
            self._choices = 0.0, ([], [])


class Pages:
    """All pages of some sources.

    Args:
        sources: at least one, by name.
        access: who may read, and change rules.
    """

    def __init__(self, sources: Sequence[Source], access: Access) -> None:
        self._sources: Mapping[str, Source] = {source.name: source for source in sources}
        self._lists = {source.name: Lists(source) for source in sources}
        self._access = access
        self._comparing = asyncio.Semaphore(1)  # it takes a core: one at a time
        self._static = _static()
        version = sha256(b"".join(self._static.values())).hexdigest()[:12]
        self._templates = Environment(
            loader=PackageLoader("stream_dedup.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals.update(
            parts=parts, spark=spark, static=f"/static/{version}", version=__version__,
            sources=list(sources), signed_in=bool(access.token), kinds=RULE_KINDS,
            size=shown_size,
        )  # fmt: skip

    def routes(self) -> list[Route]:
        """All addresses."""
        get = ["GET"]
        of_pattern = "/{source}/{identity}"
        api = "/api/v1"
        return [
            Route("/", self.index, methods=get),
            Route("/healthz", self.alive, methods=get),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/static/{version}/{name}", self.static, methods=get),
            Route("/s/{source}", self.patterns, methods=get),
            Route("/s/{source}/list", self.listed, methods=["POST"]),
            Route(f"/p{of_pattern}", self.pattern, methods=get),
            Route(f"/p{of_pattern}/facts", self.facts, methods=get),
            Route(f"/p{of_pattern}/neighbours", self.neighbours, methods=get),
            Route("/two/{source}", self.pair, methods=get),
            Route("/v/{source}", self.volume, methods=get),
            Route("/c/{source}", self.compared, methods=get),
            Route("/r/{source}", self.rules, methods=get),
            Route("/r/{source}", self.add_rule, methods=["POST"]),
            Route("/r/{source}/undo", self.undo_rule, methods=["POST"]),
            Route("/r/{source}/audit", self.audit, methods=get),
            Route(f"{api}/openapi.json", self.api_description, methods=get),
            Route(f"{api}/sources", self.api_sources, methods=get),
            Route(f"{api}/sources/{{source}}/patterns", self.api_patterns, methods=["GET", "POST"]),
            Route(f"{api}/sources/{{source}}/volume", self.api_volume, methods=get),
            Route(f"{api}/sources/{{source}}/changes", self.api_changes, methods=get),
            Route(f"{api}/sources/{{source}}/rules", self.api_rules, methods=get),
            Route(f"{api}/sources/{{source}}/rules", self.api_add_rule, methods=["POST"]),
            Route(
                f"{api}/sources/{{source}}/rules/{{rule}}/undo", self.api_undo_rule,
                methods=["POST"],
            ),
            Route(f"{api}/sources/{{source}}/audit", self.api_audit, methods=get),
            Route(f"{api}/patterns{of_pattern}", self.api_pattern, methods=get),
            Route(f"{api}/patterns{of_pattern}/counts", self.api_counts, methods=get),
            Route(f"{api}/patterns{of_pattern}/neighbours", self.api_neighbours, methods=get),
            Route(f"{api}/patterns{of_pattern}/with/{{other}}", self.api_pair, methods=get),
        ]  # fmt: skip

    def application(self) -> ASGIApp:
        """The application to serve."""
        handlers: dict[Any, Any] = {
            HTTPException: self._refused,
            RuleError: self._wrong_rule,
            RulesChanged: self._wrong_rule,
            StreamDedupError: self._away,
            Exception: self._failed,
        }
        app = Starlette(routes=self.routes(), exception_handlers=handlers, lifespan=self._reading)
        return Guard(app, self._access)

    @contextlib.asynccontextmanager
    async def _reading(self, _: Starlette) -> AsyncIterator[None]:
        """Read the sources while the application runs."""
        tasks = [
            asyncio.create_task(source.run(), name=f"reading {source.name}")
            for source in self._sources.values()
        ]
        for task in tasks:
            task.add_done_callback(_log_failure)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ pages

    async def index(self, _: Request) -> Response:
        """The list of the first source."""
        return RedirectResponse(f"/s/{next(iter(self._sources))}", HTTPStatus.SEE_OTHER)

    async def patterns(self, request: Request) -> Response:
        """A page with a list."""
        source = self._source(request)
        groups, levels = self._lists[source.name].choices()
        return self._page(
            "list.html", await self._list(source, Query()), groups=groups, levels=levels,
            source=source,
        )  # fmt: skip

    async def listed(self, request: Request) -> Response:
        """A list, for a page that is open; nothing if it has not changed."""
        source = self._source(request)
        form = await _form(request)
        seen = form.pop("seen_list", "")
        query = _chosen(form, Query)
        groups, levels = self._lists[source.name].choices()
        html = self._templates.get_template("rows.html").render(
            it=await self._list(source, query), groups=groups, levels=levels, source=source
        )
        digest = sha256(html.encode("utf-8", "replace")).hexdigest()[:16]
        if digest == seen:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        mark = f'<input type="hidden" name="seen_list" value="{digest}" form="filters">\n'
        return _html(html + mark)

    async def volume(self, request: Request) -> Response:
        """Patterns by the bytes that they take."""
        source = self._source(request)
        return self._page("volume.html", await self._volume(source, request), source=source)

    async def pattern(self, request: Request) -> Response:
        """The page of a cluster."""
        source, entry = self._entry(request)
        found, choices = await self._details(source, entry)
        record = views.printable(msgspec.json.format(bytes(found.record), indent=2), MAX_RECORD)
        return self._page(
            "pattern.html", found, source=source, record=record, choices=choices,
            state=views.source_state(source),
            about=[views.rule_of(rule) for rule in source.rules.about(entry.pattern)],
            **self._deciding(request, source),
        )  # fmt: skip

    async def facts(self, request: Request) -> Response:
        """What changes on the page of a cluster."""
        source, entry = self._entry(request)
        row = views.pattern_of(source, entry)
        template = self._templates.get_template("facts.html")
        return _html(template.render(row=row, state=views.source_state(source), source=source))

    async def neighbours(self, request: Request) -> Response:
        """The neighbours of a cluster, for its page."""
        source, entry = self._entry(request)
        template = self._templates.get_template("neighbours.html")
        problem, near = "", views.NeighbourList([])
        try:
            near = await self._near(source, entry)
        except StreamDedupError as error:
            problem = str(error)  # the page asks again
        own = views.pattern_of(source, entry)
        deciding = self._deciding(request, source)
        return _html(template.render(it=near, source=source, own=own, problem=problem, **deciding))

    async def pair(self, request: Request) -> Response:
        """The page of two clusters, side by side."""
        source = self._source(request)
        ids = [_identity(each) for each in request.query_params.getlist("id")]
        if len(ids) != 2 or ids[0] == ids[1]:
            problem = f"choose two patterns to see them side by side, not {len(ids)}"
            raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
        found = await self._pair(source, ids[0], ids[1])
        words = aligned(found.first.pattern, found.second.pattern)
        return self._page(
            "pair.html", found, source=source, aligned=words, state=views.source_state(source),
            **self._deciding(request, source),
        )  # fmt: skip

    async def compared(self, request: Request) -> Response:
        """The page that compares two periods, or files."""
        source, chosen = self._source(request), _chosen(request.query_params, Chosen)
        problem = ""
        try:
            found = await self._changes(source, chosen)
        except ValueError as error:
            problem, found = str(error), await self._changes(source, Chosen())
        return self._page(
            "compare.html", found, source=source, chosen=chosen, problem=problem,
            state=views.source_state(source),
        )  # fmt: skip

    def _page(self, name: str, it: object, **names: object) -> Response:
        return _html(self._templates.get_template(name).render(it=it, **names))

    # ------------------------------------------------------------ deciding

    async def rules(self, request: Request) -> Response:
        """The rules that act."""
        source = self._source(request)
        problem = await self._read_rules(source)
        changeable = self._may_change(source)
        return self._page(
            "rules.html", views.rule_list(source, _page_of(request), changeable=changeable),
            source=source, problem=problem, **self._deciding(request, source),
        )  # fmt: skip

    async def audit(self, request: Request) -> Response:
        """What was done with rules."""
        source = self._source(request)
        problem = await self._read_rules(source)
        found = views.audit_list(source, _page_of(request))
        return self._page("audit.html", found, source=source, problem=problem)

    async def _read_rules(self, source: Source) -> str:
        """Read the rules if they have changed.

        Returns:
            Why they cannot be read now, where others were read before; empty if they can.
        """
        try:
            await source.rules.refresh()
        except StreamDedupError as error:
            if not source.rules.is_known:
                raise
            return str(error)
        return ""

    async def add_rule(self, request: Request) -> Response:
        """Add a rule, from a form."""
        source, form = self._source(request), await _fields(request)
        one = {name: values[-1] for name, values in form.items()}
        self._check_form(request, source, one)
        patterns = [self._pattern_named(source, text) for text in form.get("pattern", ())]
        given = {
            "kind": one.get("kind", ""),
            "patterns": patterns,
            **{name: _number(one.get(name, "")) for name in ("slot", "per_minute")},
            **{name: one.get(name, "").strip() for name in ("value", "author", "reason")},
        }
        rule = self._rule(request, _converted(given, NewRule))
        try:
            await source.rules.change(lambda book: book.add(rule))
        except RuleConflict as conflict:
            return self._conflict(request, source, conflict, rule)
        return _seen_at(source, rule.id)

    async def undo_rule(self, request: Request) -> Response:
        """Undo a rule, from a form."""
        source = self._source(request)
        form = await _form(request)
        self._check_form(request, source, form)
        given = {name: form.get(name, "").strip() for name in ("author", "reason")}
        undoing = self._undoing(request, _converted(given, NewUndo))
        try:
            await source.rules.change(lambda book: book.undo(form.get("id", ""), undoing))
        except RuleConflict as conflict:
            return self._conflict(request, source, conflict)
        return _seen_at(source)

    def _deciding(self, request: Request, source: Source) -> dict[str, Any]:
        """What forms need that change rules."""
        user = self._access.user(request.headers)
        return {
            "may_change": self._may_change(source),
            "user": user,
            "author": "" if user else self._access.author,
            "form_token": self._access.form_token(request.headers),
        }

    def _may_change(self, source: Source) -> bool:
        return self._access.changes and source.rules.place is not None

    def _check_change(self, source: Source) -> None:
        """Refuse a change where none is allowed."""
        if not self._access.changes:
            problem = "rules cannot be changed here: the application was started so that it only "
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{problem}reads")
        if source.rules.place is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, source.rules.hint)

    def _check_form(self, request: Request, source: Source, form: Mapping[str, str]) -> None:
        if not self._access.sent_by(request.headers, form.get("form_token", "")):
            problem = "the page is from before the application was started, or of another user; "
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{problem}load it again, and decide there")
        self._check_change(source)

    def _pattern_named(self, source: Source, text: str) -> str:
        """Return a pattern; the id of a cluster stands for that of the cluster."""
        entry = source.entry(_identity(text.strip()))
        return entry.pattern if entry else text

    def _rule(self, request: Request, new: NewRule) -> PatternRule:
        return PatternRule(
            new.kind, tuple(new.patterns), new.slot, new.value,
            self._author(request, new.author), SystemClock().now_us(), new.reason,
            per_minute=new.per_minute,
        )  # fmt: skip

    def _undoing(self, request: Request, new: NewUndo) -> Undoing:
        return Undoing(self._author(request, new.author), SystemClock().now_us(), new.reason)

    def _author(self, request: Request, given: str) -> str:
        """Whom a proxy has signed in, or else who says to be the author."""
        user = self._access.user(request.headers)
        return user[:MAX_NAME] if user else given or self._access.author

    def _conflict(
        self,
        request: Request,
        source: Source,
        conflict: RuleConflict,
        new: PatternRule | None = None,
    ) -> Response:
        """Show the rules that contradict each other."""
        known = {rule.id: rule for rule in source.rules.book.rules}
        found = [known[each] for each in conflict.rules if each in known]
        html = self._templates.get_template("conflict.html").render(
            problem=str(conflict), rules=[views.rule_of(rule) for rule in found],
            new=None if new is None else views.rule_of(new), source=source,
            **self._deciding(request, source),
        )  # fmt: skip
        return _html(html, HTTPStatus.CONFLICT)

    # ------------------------------------------------------------ signing in

    async def login(self, request: Request) -> Response:
        """Take the token, and let the browser keep what is made of it."""
        problem = ""
        if request.method == "POST":
            form = await _form(request)
            if self._access.token and self._access.knows(form.get("token", "")):
                answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
                answer.set_cookie(
                    COOKIE,
                    self._access.session,
                    httponly=True,
                    samesite="strict",
                    secure=request.url.scheme == "https",
                )
                return answer
            problem = "This is not the token."
        html = self._templates.get_template("login.html").render(problem=problem)
        return _html(html, HTTPStatus.FORBIDDEN if problem else HTTPStatus.OK)

    async def logout(self, _: Request) -> Response:
        """Let the browser forget."""
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    # ------------------------------------------------------------ JSON

    async def api_description(self, _: Request) -> Response:
        """The description of the interface."""
        return _json(openapi.document())

    async def api_sources(self, _: Request) -> Response:
        """The sources."""
        for source in self._sources.values():
            source.wanted()
        return _json([views.source_state(source) for source in self._sources.values()])

    async def api_patterns(self, request: Request) -> Response:
        """A list."""
        source = self._source(request)
        if request.method == "POST":
            query = await _decoded(request, Query)
        else:
            fields = dict(request.query_params)
            if not fields.keys().isdisjoint({"words", "group"}):
                problem = "send words and group by POST: nothing of an event belongs in an address"
                raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
            query = _chosen(fields, Query)
        return _json(await self._list(source, query))

    async def api_pattern(self, request: Request) -> Response:
        """Everything about a cluster."""
        source, entry = self._entry(request)
        found, _ = await self._details(source, entry)
        return _json(found)

    async def api_counts(self, request: Request) -> Response:
        """The counts over time of a cluster."""
        source, entry = self._entry(request)
        return _json(views.count_list(source, entry))

    async def api_neighbours(self, request: Request) -> Response:
        """The neighbours of a cluster."""
        source, entry = self._entry(request)
        return _json(await self._near(source, entry))

    async def api_pair(self, request: Request) -> Response:
        """Two clusters, side by side."""
        source, entry = self._entry(request)
        other = _identity(request.path_params["other"])
        return _json(await self._pair(source, entry.identity, other))

    async def api_volume(self, request: Request) -> Response:
        """Patterns by the bytes that they take."""
        return _json(await self._volume(self._source(request), request))

    async def api_changes(self, request: Request) -> Response:
        """Two periods, or files, compared."""
        source = self._source(request)
        try:
            return _json(await self._changes(source, _chosen(request.query_params, Chosen)))
        except ValueError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error

    async def api_rules(self, request: Request) -> Response:
        """The rules that act."""
        source = self._source(request)
        await source.rules.refresh()
        changeable = self._may_change(source)
        return _json(views.rule_list(source, _page_of(request), changeable=changeable))

    async def api_audit(self, request: Request) -> Response:
        """What was done with rules."""
        source = self._source(request)
        await source.rules.refresh()
        return _json(views.audit_list(source, _page_of(request)))

    async def api_add_rule(self, request: Request) -> Response:
        """Add a rule."""
        source = self._source(request)
        self._check_change(source)
        rule = self._rule(request, await _body(request, NewRule))
        await source.rules.change(lambda book: book.add(rule))
        return _json(views.rule_of(rule))

    async def api_undo_rule(self, request: Request) -> Response:
        """Undo a rule."""
        source, identity = self._source(request), request.path_params["rule"]
        self._check_change(source)
        undoing = self._undoing(request, await _body(request, NewUndo))
        await source.rules.change(lambda book: book.undo(identity, undoing))
        (rule,) = (rule for rule in source.rules.book.rules if rule.id == identity)
        return _json(views.rule_of(rule))

    # ------------------------------------------------------------ others

    async def alive(self, _: Request) -> Response:
        """Whether the application answers."""
        return _json({"alive": True})

    async def static(self, request: Request) -> Response:
        """A file that never changes under its address."""
        name = request.path_params["name"]
        body = self._static.get(name)
        if body is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        kind = KINDS[name.rpartition(".")[2]]
        return Response(body, headers=headers, media_type=kind)

    def _source(self, request: Request) -> Source:
        source = self._sources.get(request.path_params["source"])
        if source is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such source")
        source.wanted()
        return source

    def _entry(self, request: Request) -> tuple[Source, Entry]:
        source = self._source(request)
        return source, self._cluster(source, _identity(request.path_params["identity"]))

    def _cluster(self, source: Source, identity: int) -> Entry:
        entry = source.entry(identity)
        if entry is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "there is no such cluster, or it is no longer kept"
            )
        source.wanted([identity])
        return entry

    async def _list(self, source: Source, query: Query) -> views.PatternList:
        found = await self._lists[source.name].find(query)
        source.wanted([entry.identity for entry in found.entries])
        return views.pattern_list(source, query, found)

    async def _volume(self, source: Source, request: Request) -> views.VolumeList:
        given = _number(request.query_params.get("per_minute", ""))
        page, per_minute = _page_of(request), min(given, MAX_PER_MINUTE) or PER_MINUTE
        query = Query(sort="bytes", page=min(page, 1_000_000), limit=views.VOLUME_A_PAGE)
        found = await self._lists[source.name].find(query)
        source.wanted([entry.identity for entry in found.entries])
        return views.volume_list(source, found, page, per_minute)

    async def _details(self, source: Source, entry: Entry) -> tuple[views.PatternDetails, Choices]:
        """Everything about a cluster, and what can be decided about it."""
        found = await source.details(entry.identity)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "this cluster is no longer kept")
        summary, inspector = found.summary, source.inspector
        events = [
            summary.representative, *summary.samples, *(value for _, value in summary.sampled)
        ]  # fmt: skip
        recipe = inspector.recipe if inspector else None

        def made() -> tuple[views.PatternDetails, Choices]:
            details = views.pattern_details(source, entry, found)
            return details, choices_of(entry.pattern, events, recipe)

        async with self._comparing:
            return await asyncio.to_thread(made)

    async def _near(self, source: Source, entry: Entry) -> views.NeighbourList:
        entries = list(source.entries.values())
        async with self._comparing:
            near = await asyncio.to_thread(neighbours, entry, entries)
        ids = [entry.identity, *(each.identity for each in near)]
        first, *values = await source.firsts(ids)  # takes seconds where the service is away
        pairs = list(zip(near, values, strict=True))
        async with self._comparing:
            return await asyncio.to_thread(views.neighbour_list, source, first or b"", pairs)

    async def _pair(self, source: Source, first: int, second: int) -> views.PatternPair:
        entries = self._cluster(source, first), self._cluster(source, second)
        one, two = await source.firsts([first, second])
        values = one or b"", two or b""
        async with self._comparing:
            return await asyncio.to_thread(views.pattern_pair, source, entries, values)

    async def _changes(self, source: Source, chosen: Chosen) -> views.ChangeList:
        """Compare two periods, or files.

        Raises:
            ValueError: there are no such ones.
        """
        files = len(source.inputs) if len(source.inputs) > 1 else 0
        if files and chosen == Chosen():
            chosen = Chosen(old_file=1, new_file=2)
        entries = list(source.entries.values())
        sides = sides_of(chosen, source.axis, files, entries, has_times=source.has_times)
        async with self._comparing:
            return await asyncio.to_thread(views.change_list, source, entries, sides)

    # ------------------------------------------------------------ what went wrong

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._problem(request, HTTPStatus(error.status_code), error.detail, error.headers)

    async def _away(self, request: Request, error: Exception) -> Response:
        return self._problem(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _wrong_rule(self, request: Request, error: Exception) -> Response:
        conflict = isinstance(error, (RuleConflict, RulesChanged))
        status = HTTPStatus.CONFLICT if conflict else HTTPStatus.UNPROCESSABLE_ENTITY
        return self._problem(request, status, str(error))

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s could not be made", request.url.path, exc_info=error)
        problem = "this page could not be made; the log says why"
        return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, problem)

    def _problem(
        self,
        request: Request,
        status: HTTPStatus,
        problem: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        if request.url.path.startswith("/api/"):
            return problem_response(status, problem, dict(headers or {}))
        html = self._templates.get_template("problem.html").render(
            problem=problem, phrase=status.phrase
        )
        return _html(html, status, headers)


# ------------------------------------------------------------ helpers


def spark(counts: Sequence[int], width: int = 120, height: int = 24) -> str:
    """The points of a small line: a polygon from the base to each count.

    >>> spark([0, 2, 1], 20, 10)
    '0,10 0,10 10,0 20,5 20,10'
    """
    most, steps = max(counts, default=0) or 1, max(1, len(counts) - 1)
    points = (
        f"{width * number / steps:g},{height - height * count / most:.3g}"
        for number, count in enumerate(counts)
    )
    return f"0,{height} {' '.join(points)} {width},{height}"


def _static() -> dict[str, bytes]:
    folder = resources.files("stream_dedup.ui") / "static"
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir(), key=str)}


def _identity(text: str) -> int:
    """The number of a cluster's id; -1 if it is none."""
    is_one = len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")
    return int(text, 16) if is_one else -1


def _page_of(request: Request) -> int:
    text = request.query_params.get("page", "")
    return max(1, int(text)) if text.isdecimal() and len(text) < ID_DIGITS else 1


def _seen_at(source: Source, rule: str = "") -> Response:
    """To the rules, where the new one is the first."""
    place = f"/r/{source.name}#{rule}" if rule else f"/r/{source.name}"
    return RedirectResponse(place, HTTPStatus.SEE_OTHER)


async def _fields(request: Request) -> dict[str, list[str]]:
    """The fields of a form."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, max_num_fields=40)
    except ValueError:
        return {}


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, the last of each name."""
    return {name: values[-1] for name, values in (await _fields(request)).items()}


T = TypeVar("T")


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the error by which a task has ended: nobody awaits it before the application ends."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed; start the application again", task.get_name(), exc_info=error)


def _converted(given: Mapping[str, object], kind: type[T], *, strict: bool = True) -> T:
    """Make a change of what a form has sent.

    Raises:
        HTTPException: it is not valid.
    """
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def _chosen(fields: Mapping[str, str], kind: type[T]) -> T:
    """Read what is asked for, from the fields of a form or an address; empty ones are not given.

    Raises:
        HTTPException: it is not valid.
    """
    given = {name: value for name, value in fields.items() if value}
    return _converted(given, kind, strict=False)


async def _body(request: Request, kind: type[T]) -> T:
    """Read a change from the body of a request.

    Raises:
        HTTPException: it is not valid, or not named as JSON: a foreign page cannot send JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        problem = "send JSON, with Content-Type: application/json"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem)
    return await _decoded(request, kind)


async def _decoded(request: Request, kind: type[T]) -> T:
    """Decode the body of a request.

    Raises:
        HTTPException: it is not valid.
    """
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 else 0


def _html(
    text: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    body = text.encode("utf-8", "replace")
    return Response(body, status, dict(headers or {}), media_type="text/html")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", media_type="application/json")
