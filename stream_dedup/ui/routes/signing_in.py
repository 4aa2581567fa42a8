"""The page on which a browser signs in with the token, and the way out."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stream_dedup.ui.routes.rendering import Templates
from stream_dedup.ui.routes.requests import read_form
from stream_dedup.ui.security import COOKIE, Access


class SignIn:
    """Signing in and out.

    Args:
        access: who may read.
        templates: of the page.
    """

    def __init__(self, access: Access, templates: Templates) -> None:
        self._access = access
        self._templates = templates

    def routes(self) -> list[Route]:
        """The addresses."""
        return [
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
        ]

    async def login(self, request: Request) -> Response:
        """Take the token, and let the browser keep what is made of it."""
        problem = ""
        if request.method == "POST":
            form = await read_form(request)
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
        status = HTTPStatus.FORBIDDEN if problem else HTTPStatus.OK
        return self._templates.response("login.html", status, problem=problem)

    async def logout(self, _: Request) -> Response:
        """Let the browser forget."""
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer
