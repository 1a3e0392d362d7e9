"""Clips over HTTP: ``/clips/{lease token}/{left|right}``, for whoever knows the token.

A token holds 128 random bits that one annotator's page was given; there is no list, and an address says neither
which segment nor which policy it shows. A clip never changes under its address, so browsers keep it.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from labeling_app.source import database, source
from prefrl.errors import StoreError
from prefrl.segments.video import media_type
from prefrl.store.clips import clip_of_lease
from prefrl.store.engine import Database

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

SIDES = ("left", "right")
PATH = "/clips/{token}/{side}"
HEADERS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}
_TOKEN = re.compile(r"[0-9A-Za-z-]{8,96}\Z")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")
_routed = False  # whether this process serves the route; else clips travel inside the page


def routes() -> list[Route]:
    """The route, for `streamlit.App`; from now on the page refers to it."""
    from starlette.routing import Route

    global _routed
    _routed = True
    return [Route(PATH, serve_clip, methods=["GET", "HEAD"])]


def routed() -> bool:
    """Whether this process serves the route."""
    return _routed


def clip_url(db: Database, token: str, side: str) -> str:
    """Where the browser finds a clip: an address of ours, or the clip itself where there is no route."""
    if _routed:
        return f"clips/{token}/{side}"
    video = clip_of_lease(db, token, side)
    return "" if video is None else f"data:{media_type(video)};base64,{base64.b64encode(video).decode()}"


def serve_clip(request: Request) -> Response:
    """Answers one request; the words of a refusal never say what else there is."""
    token, side = request.path_params["token"], request.path_params["side"]
    if side not in SIDES or not _TOKEN.match(token):
        return _refusal(404, "There is no such clip.")
    try:
        video = clip_of_lease(database(source().url), token, side)
    except StoreError:
        return _refusal(503, "The database does not answer; try again in a moment.")
    if video is None:
        return _refusal(404, "There is no such clip, or it is no longer in the database.")
    return _part(video, request.headers.get("range"))


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte that a Range header asks for; None means all of them.

    A form that is not understood is ignored, as RFC 9110 (section 14.2) wants.

    Raises:
        ValueError: No byte of the clip is asked for.
    """
    found = _RANGE.match((header or "").replace(" ", ""))
    if not found or not (found[1] or found[2]):
        return None
    if not found[1]:  # the last bytes
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first > last:
        raise ValueError(header)
    return first, last


def _part(video: bytes, header: str | None) -> Response:
    from starlette.responses import Response

    size = len(video)
    try:
        wanted = byte_range(header, size)
    except ValueError:
        return Response(status_code=416, headers={**HEADERS, "Content-Range": f"bytes */{size}"})
    if wanted is None:
        return Response(video, headers=HEADERS, media_type=media_type(video))
    first, last = wanted
    headers = {**HEADERS, "Content-Range": f"bytes {first}-{last}/{size}"}
    return Response(video[first : last + 1], 206, headers, media_type(video))


def _refusal(status: int, words: str) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(words, status, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
