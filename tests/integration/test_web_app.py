"""The sidecar's pages through ASGI, as a client meets them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from loguru import logger
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from csi.errors import ConfigError
from csi.ingester.event import CreatorSignalEvent
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime, open_runtime
from csi.store import db, destinations, events, heartbeats, watches
from csi.store.models import Watch
from csi.token_guess_limit import GUESSES
from csi.web import guards, middleware, shared_state
from csi.web.app import create_app

TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
READER = {"Authorization": f"Bearer {READ_TOKEN}"}
PLAYLIST = "PLveryprivateplaylist"
CONFIG = f"""
csi: {{log_level: INFO}}
web: {{allowed_hosts: [test]}}
sources:
  youtube_playlist: {{api_base_url: "http://127.0.0.1:9/youtube/v3", playlists: [{{id: {PLAYLIST}}}]}}
  youtube_channel_rss: {{enabled: false}}
"""
EVENT = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]


class Opener:
    """Opens a runtime in a directory of its own, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.threads: set[int] = set()
        self.fault: Exception | None = None
        self.env = {
            "CSI_STATE_DIR": str(folder / "state"),
            "CSI_ADMIN_TOKEN": TOKEN,
            "CSI_ADMIN_READ_TOKEN": READ_TOKEN,
        }
        self.write(CONFIG)

    def write(self, text: str) -> None:
        (self.folder / "config.yaml").write_text(text)

    def __call__(self) -> Runtime:
        self.count += 1
        self.threads.add(threading.get_ident())
        if self.fault:
            raise self.fault
        return open_runtime(self.folder / "config.yaml", self.env)


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    return Opener(tmp_path)


@pytest.fixture
def app(opener: Opener) -> Starlette:
    return create_app(opener)


@pytest_asyncio.fixture
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as one:
        yield one


def client_of(app: Starlette, **changes: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(**{"transport": httpx.ASGITransport(app=app), "base_url": "http://test", **changes})


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    sink = logger.add(lambda message: lines.append({"message": message.record["message"], **message.record["extra"]}))
    yield lines
    logger.remove(sink)


def store_events(opener: Opener, count: int) -> None:
    rt = opener()
    with db.connection():
        sync_watches(rt)
        watch = watches.of_source("youtube_playlist")[0]
        for number in range(count):
            event = CreatorSignalEvent(**EVENT | {"event_id": f"e{number}", "subject": {"title": "Geheimer Titel 🚀"}})
            now = rt.now()
            events.add(event, watch_id=watch.id, seq=number, tier="urgent", first_seen_at=now)


def make_ready(rt: Runtime) -> None:
    now = rt.now()
    with db.connection():
        sync_watches(rt)
        Watch.update(last_success_at=now, last_poll_at=now, next_poll_at=now + 30).execute()
        heartbeats.write("worker", now, now - 100)


# ── open pages ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_healthz_opens_nothing(client: httpx.AsyncClient, opener: Opener) -> None:
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "healthy")
    assert answer.json()["timestamp"].endswith("Z")
    assert opener.count == 0


@pytest.mark.asyncio
async def test_the_runtime_is_opened_once_and_never_in_the_event_loop(
    client: httpx.AsyncClient, opener: Opener
) -> None:
    await asyncio.gather(*(client.get(path) for path in ("/readyz", "/livez", "/metrics") * 3))
    assert opener.count == 1
    assert threading.get_ident() not in opener.threads


@pytest.mark.asyncio
async def test_reset_reads_the_environment_anew(client: httpx.AsyncClient, app: Starlette, opener: Opener) -> None:
    assert (await client.get("/admin/events", headers=ADMIN)).status_code == 200
    del opener.env["CSI_ADMIN_TOKEN"], opener.env["CSI_ADMIN_READ_TOKEN"]
    assert (await client.get("/admin/events", headers=ADMIN)).status_code == 200
    app.state.reset()
    closed = await client.get("/admin/events", headers=ADMIN)
    assert closed.status_code == 403
    assert closed.headers["content-type"] == "application/problem+json"
    assert closed.json()["detail"] == "the admin API needs a token: set CSI_ADMIN_TOKEN"


@pytest.mark.asyncio
async def test_readyz_without_a_worker_and_then_with_one(client: httpx.AsyncClient, opener: Opener) -> None:
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
    assert (
        answer.json()["adapters"]["youtube_playlist"] | {"polling": False, "last_poll": None}
        == (answer.json()["adapters"]["youtube_playlist"])
    )
    assert len(answer.json()["reasons"]) == 2
    make_ready(opener())
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["reasons"]) == (200, "ready", [])
    assert answer.json()["adapters"]["youtube_playlist"]["polling"] is True
    assert (await client.get("/livez")).status_code == 200
    with db.connection():
        destinations.get()
        destinations.change("default", circuit="open", last_failure_at=opener().now())
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["delivery"]["ua_reachable"] is False


@pytest.mark.asyncio
async def test_open_pages_tell_no_titles_ids_or_urls(client: httpx.AsyncClient, opener: Opener) -> None:
    store_events(opener, 3)
    with db.connection():
        Watch.update(errors=5, last_error=f"GET http://127.0.0.1:9/{PLAYLIST} failed").execute()
        destinations.get()
        destinations.change("default", circuit="open", reason="https://ua.example/x", last_error="https://ua.example/x")
    for path in ("/healthz", "/readyz", "/livez", "/metrics", "/nothing"):
        text = (await client.get(path)).text
        for secret in (
            PLAYLIST,
            "Geheimer",
            "http://",
            "https://",
            "ua.example",
            "e1",
            TOKEN,
            str(opener.folder),
        ):
            assert secret not in text, (path, secret)


@pytest.mark.asyncio
async def test_a_broken_configuration_is_said_without_details_and_can_be_mended(
    client: httpx.AsyncClient, opener: Opener, logged: list[dict[str, Any]]
) -> None:
    opener.fault = ConfigError("/etc/csi/config.yaml:3: canary")
    for path in ("/readyz", "/livez", "/metrics"):
        answer = await client.get(path)
        assert answer.status_code == 503
        assert "the log says why" in answer.text
        assert "canary" not in answer.text
    assert (await client.get("/admin/events", headers=ADMIN)).status_code == 503
    assert (await client.get("/healthz")).status_code == 200
    assert any("canary" in str(line.get("error")) for line in logged)
    opener.fault = None
    assert (await client.get("/metrics")).status_code == 200


@pytest.mark.asyncio
async def test_a_database_that_goes_bad_is_503_and_no_traceback(
    client: httpx.AsyncClient, opener: Opener, logged: list[dict[str, Any]]
) -> None:
    assert (await client.get("/metrics")).status_code == 200
    for file in (opener.folder / "state").glob("csi.db*"):
        file.write_bytes(b"not a database" * 1000)
    assert (await client.get("/readyz")).json()["database"] == {"ok": False}
    page = await client.get("/metrics")
    assert (page.status_code, 'csi_problems{problem="storage"} 1.0' in page.text) == (200, True)
    assert (await client.get("/admin/events", headers=ADMIN)).status_code == 503
    assert not any(line["message"] == "request failed" for line in logged)


@pytest.mark.asyncio
async def test_a_database_that_does_not_answer_is_not_waited_for(
    client: httpx.AsyncClient, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(shared_state, "READ_SECONDS", 0.05)
    monkeypatch.setattr("csi.web.app.gather", lambda rt: release.wait(20))
    try:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["database"]) == (503, {"ok": False})
        assert (await client.get("/healthz")).status_code == 200
    finally:
        release.set()


@pytest.mark.asyncio
async def test_every_answer_has_its_security_headers(
    client: httpx.AsyncClient, app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rt: Runtime) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("csi.web.app.gather", fail)
    asked = {
        "/healthz": 200, "/readyz": 500, "/metrics": 200, "/nothing": 404, "/admin": 401, "/admin/events": 401,
    }  # fmt: skip
    for path, expected in asked.items():
        answer = await client.get(path)
        assert answer.status_code == expected
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        if expected >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == expected


@pytest.mark.asyncio
async def test_in_a_crowd_healthz_still_answers(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_IN_FLIGHT", 0)
    crowded = await client.get("/readyz")
    assert (crowded.status_code, crowded.headers["retry-after"]) == (503, "1")
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.asyncio
async def test_clients_that_send_no_body_keep_no_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be in flight wait for their body; the next request is served."""
    monkeypatch.setattr(middleware, "MAX_IN_FLIGHT", 1)

    async def read(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    app = middleware.SidecarMiddleware(Starlette(routes=[Route("/", read, methods=["POST"])]))
    begun, sent = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        begun.set()
        await sent.wait()
        yield b"late"

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as one:
        waiting = asyncio.create_task(one.post("/", content=slowly()))
        await begun.wait()
        assert (await one.post("/", content=b"quick")).text == "5"
        sent.set()
        assert (await waiting).text == "4"
    assert app._in_flight == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/admin/status"), ("GET", "/feeds/events.atom"), ("GET", "/feeds/guess/events.atom"), ("POST", "/mcp")],
)
async def test_guessing_tokens_at_one_path_locks_the_address_out_of_all(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    for _ in range(GUESSES):
        answer = await client.request(method, path, headers={"Authorization": "Bearer guess"})
        assert answer.status_code == 401
    for other in ("/admin/status", "/feeds/events.atom", f"/feeds/{READ_TOKEN}/events.atom"):
        assert (await client.get(other, headers=ADMIN)).status_code == 429
    assert (await client.post("/mcp", headers=ADMIN)).status_code == 429


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    ["/admin", "/admin/", "/admin/events", "/admin/nothing", "/admin/adapters/x/poll", "/admin//events"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"])
async def test_every_admin_path_needs_a_token(client: httpx.AsyncClient, path: str, method: str) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["//admin/events", "/ADMIN/events", "/adminevents", "/admin%2fevents", "/x/../admin/events"]
)
async def test_odd_paths_do_not_bypass_the_guard(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(httpx.URL("http://test").copy_with(raw_path=path.encode()))
    assert answer.status_code in (401, 404)


@pytest.mark.asyncio
async def test_hostile_credentials_are_401_never_500(client: httpx.AsyncClient) -> None:
    for raw in (
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 500_000,
        b"\x00",
        b"Bearer " + TOKEN.encode() + b"\x00",
    ):
        answer = await client.get("/admin/events", headers=[(b"Authorization", raw)])
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    twice = [("Authorization", ADMIN["Authorization"])] * 2
    assert (await client.get("/admin/events", headers=twice)).status_code == 401


@pytest.mark.asyncio
async def test_a_foreign_host_is_misdirected_and_open_pages_do_not_mind(app: Starlette) -> None:
    async with client_of(app, base_url="http://evil.example") as client:
        assert (await client.get("/admin/events", headers=ADMIN)).status_code == 421
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.asyncio
async def test_the_read_token_reads_and_cross_site_posts_are_refused(client: httpx.AsyncClient) -> None:
    path = "/admin/adapters/youtube_playlist/poll"
    assert (await client.get("/admin/events", headers=READER)).status_code == 200
    assert (await client.post(path, headers=READER)).status_code == 403
    assert (await client.post(path, headers=ADMIN | {"Origin": "https://evil.example"})).status_code == 403
    assert (await client.post(path, headers=ADMIN | {"Sec-Fetch-Site": "cross-site"})).status_code == 403
    tricked = READER | {"X-HTTP-Method-Override": "POST", "X-Forwarded-Host": "test"}
    assert (await client.get(path, headers=tricked)).status_code == 405


@pytest.mark.asyncio
async def test_a_body_has_a_limit_with_and_without_a_length(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = "/admin/adapters/nothing/poll", 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"x" * 65536

    assert (await client.post(path, headers=ADMIN, content=b"x" * guards.MAX_BODY)).status_code == 404
    assert (await client.post(path, headers=ADMIN, content=b"x" * (guards.MAX_BODY + 1))).status_code == 413
    huge = ADMIN | {"Content-Length": "9" * 5000}
    assert (await client.post(path, headers=huge, content=b"")).status_code == 413
    assert (await client.post(path, headers=ADMIN, content=stream())).status_code == 413
    assert sent < 100
    monkeypatch.setattr(guards, "BODY_SECONDS", 0.01)
    never = asyncio.Event()

    async def drip() -> AsyncIterator[bytes]:
        yield b"x"
        await never.wait()

    assert (await client.post(path, headers=ADMIN, content=drip())).status_code == 408


@pytest.mark.asyncio
async def test_switched_off_it_is_404(client: httpx.AsyncClient, opener: Opener) -> None:
    opener.write(CONFIG + "features: {admin_api: false}\n")
    for headers in ({}, ADMIN):
        assert (await client.get("/admin/events", headers=headers)).status_code == 404


@pytest.mark.asyncio
async def test_actions_are_written_down_without_tokens(client: httpx.AsyncClient, logged: list[dict[str, Any]]) -> None:
    await client.post("/admin/adapters/nothing/poll", headers=ADMIN)
    await client.post("/admin/nothing", headers=ADMIN)
    await client.get("/admin/events", headers=ADMIN)
    actions = [line for line in logged if line["message"] == "admin action"]
    assert [(line["action"], line["client"], line["status"]) for line in actions] == [
        ("POST /admin/adapters/nothing/poll", "127.0.0.1", 404),
        ("POST /admin/nothing", "127.0.0.1", 404),
    ]
    assert TOKEN not in json.dumps(logged, default=str)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_events_newest_first_and_page_by_page(client: httpx.AsyncClient, opener: Opener) -> None:
    store_events(opener, 5)
    first = (await client.get("/admin/events?limit=2", headers=ADMIN)).json()
    assert [event["event_id"] for event in first["events"]] == ["e4", "e3"]
    second = (await client.get(f"/admin/events?limit=2&before={first['next']}", headers=ADMIN)).json()
    third = (await client.get(f"/admin/events?limit=2&before={second['next']}", headers=ADMIN)).json()
    assert [event["event_id"] for event in third["events"]] == ["e0"]
    assert third["next"] is None
    event = first["events"][0]
    assert event["subject"] == {"title": "Geheimer Titel 🚀"}
    assert (event["state"], event["tier"], event["delivered_at"]) == ("pending", "urgent", None)
    assert CreatorSignalEvent(**event).event_id == "e4"


@pytest.mark.asyncio
async def test_events_by_state_and_source(client: httpx.AsyncClient, opener: Opener) -> None:
    store_events(opener, 2)

    async def count(query: str) -> int:
        return len((await client.get(f"/admin/events?{query}", headers=ADMIN)).json()["events"])

    assert await count("state=pending&source=youtube_playlist") == 2
    assert await count("state=&source=&before=") == 2
    assert await count("state=dead") == 0
    assert await count("source=youtube_channel_rss") == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=-1", "limit=1.5", "limit=x", "limit=%D9%A1", "limit=1e3", "limit=+1",
        "limit=" + "9" * 5000, "before=0", "before=x", f"before={2**63}", "state=lost", "state=pending'--",
        "source=reddit", "limit=1&limit=2", "colour=red", "Limit=1",
    ],
)  # fmt: skip
async def test_bad_parameters_are_400(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/admin/events?{query}", headers=ADMIN)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


# ── poll now ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_unknown_disabled_and_switched_off_adapters(client: httpx.AsyncClient, opener: Opener) -> None:
    unknown = await client.post("/admin/adapters/reddit/poll", headers=ADMIN)
    assert unknown.status_code == 404
    assert "youtube_playlist" in unknown.json()["detail"]
    disabled = await client.post("/admin/adapters/youtube_channel_rss/poll", headers=ADMIN)
    assert disabled.status_code == 409


@pytest.mark.asyncio
async def test_polling_switched_off_is_a_conflict(client: httpx.AsyncClient, opener: Opener) -> None:
    opener.write(CONFIG + "features: {polling: false}\n")
    answer = await client.post("/admin/adapters/youtube_playlist/poll", headers=ADMIN)
    assert answer.status_code == 409


@pytest.mark.asyncio
async def test_a_source_that_cannot_be_read_is_told_and_a_held_watch_is_busy(
    client: httpx.AsyncClient, opener: Opener
) -> None:
    path = "/admin/adapters/youtube_playlist/poll"
    answer = await client.post(path, headers=ADMIN)
    assert answer.status_code == 200
    assert answer.json() | {"errors": []} == {
        "adapter": "youtube_playlist", "watches": 1, "polled": 0, "busy": 0, "new_items": 0, "errors": [],
    }  # fmt: skip
    assert answer.json()["errors"][0]["watch"] == PLAYLIST
    assert answer.json()["errors"][0]["error"]
    with db.connection():
        assert watches.claim(watches.active()[0].id, opener().now(), 55, early=True)
    busy = (await client.post(path, headers=ADMIN)).json()
    assert (busy["watches"], busy["busy"], busy["polled"], busy["errors"]) == (1, 1, 0, [])


@pytest.mark.asyncio
async def test_while_a_worker_lives_its_watches_are_left_as_they_are(client: httpx.AsyncClient, opener: Opener) -> None:
    rt = opener()
    with db.connection():
        heartbeats.write("worker", rt.now(), rt.now())
    answer = await client.post("/admin/adapters/youtube_playlist/poll", headers=ADMIN)
    assert answer.json()["watches"] == 0
