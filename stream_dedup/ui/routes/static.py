"""Static files: scripts, styles and pictures."""

from __future__ import annotations

from hashlib import sha256
from http import HTTPStatus
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MEDIA_TYPES = {
    "js": "text/javascript", "css": "text/css", "txt": "text/plain", "svg": "image/svg+xml",
}  # fmt: skip
"""By the endings of names."""


class StaticFiles:
    """All static files, read at the start. Browsers keep them: another version has other addresses.

    Attributes:
        address: of the folder, in this version.
    """

    def __init__(self) -> None:
        folder = resources.files("stream_dedup.ui") / "static"
        self._files = {each.name: each.read_bytes() for each in sorted(folder.iterdir(), key=str)}
        self.address = f"/static/{sha256(b''.join(self._files.values())).hexdigest()[:12]}"

    def routes(self) -> list[Route]:
        """The addresses of the files."""
        return [Route("/static/{version}/{name}", self.file, methods=["GET"])]

    async def file(self, request: Request) -> Response:
        """A file that never changes under its address."""
        name = request.path_params["name"]
        body = self._files.get(name)
        if body is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(body, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])
