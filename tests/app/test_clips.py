"""The route of the clips: bytes for whoever has the token, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labeling_app import clips, source
from labeling_app.clips import byte_range

pytest.importorskip("starlette")


@pytest.fixture
def served(desk, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    from starlette.applications import Starlette

    monkeypatch.setattr(clips, "_routed", False)
    monkeypatch.setenv(source.DB_VARIABLE, database_url)
    yield Starlette(routes=clips.routes())
    source._open.pop(database_url).close()


def get(app: object, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request, without a server and without a client library."""
    import asyncio

    got: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        got.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(app(scope, receive, send))
    found = {key.decode(): value.decode() for key, value in got[0]["headers"]}
    return got[0]["status"], found, b"".join(message.get("body", b"") for message in got[1:])


def test_whole_and_in_parts(desk, served: object) -> None:
    desk.propose(1)
    (pair,) = desk.labeler().refill().pairs
    for side in ("left", "right"):
        path = f"/clips/{pair.token}/{side}"
        video = clips.clip_of_lease(desk.db, pair.token, side)
        status, headers, body = get(served, path)
        assert (status, body) == (200, video)
        assert headers["content-type"] == "video/mp4"
        assert headers["accept-ranges"] == "bytes"
        assert headers["cache-control"] == "private, max-age=31536000, immutable"
        status, headers, body = get(served, path, range="bytes=10-19")
        assert (status, body) == (206, video[10:20])
        assert headers["content-range"] == f"bytes 10-19/{len(video)}"
        assert get(served, path, range="bytes=0-")[::2] == (206, video)
        status, headers, _ = get(served, path, range=f"bytes={len(video)}-")
        assert (status, headers["content-range"]) == (416, f"bytes */{len(video)}")
    assert desk.labeler("bob").refill().pairs == ()


def test_unknown_tokens(desk, served: object) -> None:
    desk.propose(1)
    (pair,) = desk.labeler().refill().pairs
    for path in (
        f"/clips/{'0' * 32}-1/left",
        f"/clips/{pair.token}/up",
        "/clips/%25/left",
        f"/clips/{pair.token[:8]}/left",
    ):
        status, headers, body = get(served, path)
        assert (status, headers["cache-control"]) == (404, "no-store")
        assert b"no such clip" in body
    for path in ("/clips", "/clips/", f"/clips/{pair.token}", f"/clips/{pair.token}/"):
        assert get(served, path)[0] == 404
    assert get(served, f"/clips/{pair.token}/left", "POST")[0] == 405


def test_a_database_that_does_not_answer(served: object, desk, monkeypatch: pytest.MonkeyPatch) -> None:
    source.database(source.source().url)
    monkeypatch.setenv(source.DB_VARIABLE, "sqlite:////nowhere/at/all.db")
    status, _, body = get(served, f"/clips/{'0' * 32}-1/left")
    assert status == 503
    assert b"nowhere" not in body


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None),
        ("", None),
        ("bytes=-", None),
        ("items=0-4", None),
        ("bytes=0-1,4-5", None),
        ("bytes=5-2", None),
        ("bytes=0-", (0, 99)),
        ("bytes=0-0", (0, 0)),
        ("bytes=90-400", (90, 99)),
        ("bytes=-30", (70, 99)),
        ("bytes=-400", (0, 99)),
    ],
)
def test_ranges(header: str | None, wanted: tuple[int, int] | None) -> None:
    assert byte_range(header, 100) == wanted


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=-0"])
def test_ranges_without_a_byte(header: str) -> None:
    with pytest.raises(ValueError, match="bytes"):
        byte_range(header, 100)


def test_without_a_route_the_clip_is_in_the_page(desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "_routed", False)
    desk.propose(1)
    (pair,) = desk.labeler().refill().pairs
    assert clips.clip_url(desk.db, pair.token, "left").startswith("data:video/mp4;base64,AAAA")
    assert clips.clip_url(desk.db, "unknown-token", "left") == ""
    monkeypatch.setattr(clips, "_routed", True)
    assert clips.clip_url(desk.db, pair.token, "left") == f"clips/{pair.token}/left"
