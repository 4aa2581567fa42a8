"""Who may change rules, and the rule that is made of a request."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from stream_dedup.clock import SystemClock
from stream_dedup.rules.model import MAX_NAME, PatternRule, Undoing
from stream_dedup.ui.deciding import NewRule, NewUndo
from stream_dedup.ui.security import Access
from stream_dedup.ui.sources import Source


class RuleChanges:
    """Changes of rules.

    Args:
        access: who may change rules.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def allowed(self, source: Source) -> bool:
        """Whether the rules of a source may be changed here."""
        return self._access.changes and source.rules.place is not None

    def check(self, source: Source) -> None:
        """Refuse a change where none is allowed.

        Raises:
            HTTPException: none is allowed.
        """
        if not self._access.changes:
            problem = "rules cannot be changed here: the application was started so that it only "
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{problem}reads")
        if source.rules.place is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, source.rules.hint)

    def check_form(self, request: Request, source: Source, form: Mapping[str, str]) -> None:
        """Refuse a form that no page of this server has sent, or where no change is allowed.

        Raises:
            HTTPException: it is refused.
        """
        if not self._access.sent_by(request.headers, form.get("form_token", "")):
            problem = "the page is from before the application was started, or of another user; "
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{problem}load it again, and decide there")
        self.check(source)

    def form(self, request: Request, source: Source) -> dict[str, Any]:
        """Return what the templates of forms need."""
        user = self._access.user(request.headers)
        return {
            "may_change": self.allowed(source),
            "user": user,
            "author": "" if user else self._access.author,
            "form_token": self._access.form_token(request.headers),
        }

    def rule(self, request: Request, new: NewRule) -> PatternRule:
        """Return the rule that a request asks for."""
        return PatternRule(
            new.kind, tuple(new.patterns), new.slot, new.value,
            self._author(request, new.author), SystemClock().now_us(), new.reason,
            per_minute=new.per_minute,
        )  # fmt: skip

    def undoing(self, request: Request, new: NewUndo) -> Undoing:
        """Return who undoes a rule now, and why."""
        return Undoing(self._author(request, new.author), SystemClock().now_us(), new.reason)

    def _author(self, request: Request, given: str) -> str:
        """Whom a proxy has signed in, or else who says to be the author."""
        user = self._access.user(request.headers)
        return user[:MAX_NAME] if user else given or self._access.author
