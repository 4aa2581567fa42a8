"""Who may read the pages, who may decide in them, and what a browser may do with them.

On 127.0.0.1 whoever has an account on the machine may read. On any other address a reader proves
who they are: by a token, or by the header of a proxy that has signed them in, unless the operator
says that the pages are open. Whoever may read may change rules, but not where the pages are open,
unless the operator says that, too.

- Every request must ask for a name that nobody outside can own (`listening.HostNames`), or a
  foreign page could read through DNS rebinding.
- A browser signs in once with the token, and keeps a cookie made of it; programs send the token as
  ``Authorization: Bearer``. Comparisons take the same time for every wrong value.
- A request that changes something must come from a page of this server: its origin is compared, as
  the browser names it, and a form has a token that only a page of this server could show. Programs
  send JSON, which a foreign page cannot without being asked first.
- The policy of content lets a page load scripts, styles and data from here only, and run no script
  that is in a page. So text from events cannot become a script even if it became markup.
"""

from __future__ import annotations

import contextlib
import hmac
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from secrets import token_bytes

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dedup.errors import ConfigError, ConfigProblem
from stream_dedup.listening import HostNames

COOKIE = "stream-dedup"

LEAST_TOKEN = 16
"""Characters of a token."""

MAX_BODY_BYTES = 256 * 1024
"""Of a request: a rule that merges 16 long patterns."""

OPEN_PATHS = ("/healthz", "/login", "/static/")
"""What is served without a token: nothing of events."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a form would not name its origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "stream-dedup",
}


@dataclass(frozen=True)
class Access:
    """Who may read, and change.

    Attributes:
        names: the names by which the server may be asked.
        token: what readers know; empty without.
        user_header: the header in which a proxy names its user; empty without.
        changes: whether those who may read may change rules.
        author: of rules that somebody makes who gives no name.
        secret: of the tokens of forms.
    """

    names: HostNames
    token: str = ""
    user_header: str = ""
    changes: bool = True
    author: str = ""
    secret: bytes = field(default_factory=partial(token_bytes, 32), repr=False)

    @property
    def session(self) -> str:
        """What a browser keeps instead of the token."""
        return hmac.new(self.token.encode(), b"stream-dedup ui session", sha256).hexdigest()

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def user(self, headers: Headers) -> str:
        """The user that a proxy has signed in; empty without such a proxy."""
        if not self.user_header:
            return ""
        name = headers.get(self.user_header, "").strip()
        with contextlib.suppress(UnicodeError):  # a header is read as Latin-1
            name = name.encode("latin-1").decode("utf-8")
        return name

    def form_token(self, headers: Headers) -> str:
        """What a form must send: only pages of this server show it."""
        text = f"form\n{self.user(headers)}".encode("utf-8", "replace")
        return hmac.new(self.token.encode() or self.secret, text, sha256).hexdigest()

    def sent_by(self, headers: Headers, form_token: str) -> bool:
        """Whether a form comes from a page of this server that the same user has opened."""
        expected = self.form_token(headers).encode()
        return hmac.compare_digest(form_token.encode("utf-8", "replace"), expected)

    def admits(self, headers: Headers) -> bool:
        """Whether a request may be answered."""
        if self.token:
            kind, _, token = headers.get("authorization", "").partition(" ")
            if kind.lower() == "bearer" and self.knows(token.strip()):
                return True
            if hmac.compare_digest(
                _cookie(headers).encode("utf-8", "replace"), self.session.encode()
            ):
                return True
        if self.user_header:
            return bool(headers.get(self.user_header, "").strip())
        return not self.token


def is_foreign(headers: Headers) -> bool:
    """Whether a browser says that a page of another origin has sent a request."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    if origin is None:
        return False  # no browser
    return origin.partition("://")[2].lower() != headers.get("host", "").lower()


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def read_token(path: str) -> str:
    """Read a token: the first line of a file.

    Raises:
        ConfigError: it cannot be read, or is too short to be secret.
    """
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- as the user named it
            token = file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError(
            ConfigProblem("--token-file", "", f"{path} cannot be read: {why}", "name another")
        ) from error
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        remedy = "make one: openssl rand -hex 32 > FILE"
        problem = (
            f"the first line of {path} is not a token of {LEAST_TOKEN} ASCII characters or more"
        )
        raise ConfigError(ConfigProblem("--token-file", "", problem, remedy))
    return token


class Guard:
    """Refuses requests before they reach the application, and adds headers to all answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, headed)
            return
        body = _Body(receive)
        await self._app(scope, body.receive, headed)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not self._access.names.allow(host):
            problem = "this is not a name of this server; add it with --allowed-host"
            return problem_response(HTTPStatus.MISDIRECTED_REQUEST, problem)
        if scope["method"] not in {"GET", "HEAD"} and is_foreign(headers):
            problem = "a page of another site has sent this; open the page here, and try again"
            return problem_response(HTTPStatus.FORBIDDEN, problem)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            problem = f"a request has {MAX_BODY_BYTES} bytes at most"
            return problem_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem)
        if path.startswith(OPEN_PATHS) or self._access.admits(headers):
            return None
        if not path.startswith("/api/") and self._access.token and "hx-request" not in headers:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        challenge = {"WWW-Authenticate": "Bearer"} if self._access.token else {}
        problem = "send the token of --token-file as Authorization: Bearer"
        if not self._access.token:
            problem = f"the proxy in front sends no user in {self._access.user_header}"
        return problem_response(HTTPStatus.UNAUTHORIZED, problem, challenge)


class _Body:
    """Ends a request whose body turns out to be too long."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = MAX_BODY_BYTES

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        return {"type": "http.disconnect"} if self._left < 0 else message


def problem_response(
    status: HTTPStatus, problem: str, headers: dict[str, str] | None = None
) -> Response:
    """An answer that says what is wrong, as JSON."""
    body = msgspec.json.encode({"error": problem}) + b"\n"
    return Response(body, status, headers, media_type="application/json")
