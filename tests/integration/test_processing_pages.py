"""The receiver's dashboard and the webhook: who may read, and titles that contain markup."""

import base64
import os
import re

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from csi.local_login import LocalLogin, make_key
from csi.processing import assemblyai_webhook
from csi.processing.assemblyai_webhook import WEBHOOK_PATH
from csi.processing.pages.app import routes
from csi.processing.store import db, jobs
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from csi.token_guess_limit import GUESSES
from tests.fakes.providers import FakeAssembly

pytestmark = pytest.mark.asyncio
SECRET = "webhook-secret-1"
EVIL = "</pre><script>alert(1)</script>"


PASSWORD = "a-long-password"


def client(app: Starlette, host: str = "127.0.0.1", password: str | None = PASSWORD) -> httpx.AsyncClient:
    transport, auth = httpx.ASGITransport(app=app, client=(host, 1234)), ("any", password) if password else None
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8090", auth=auth)


@pytest_asyncio.fixture
async def bench(open_bench):
    made = open_bench()
    made.deliver("vid00000001", subject={"title": EVIL}, text=f"{EVIL} is what was said. And more.")
    made.deliver("vid00000002", pipeline="mystery", subject={"title": EVIL})
    (made.home / "transcripts" / "vid00000003.json").write_text("{broken")
    made.deliver("vid00000003", text=None)
    made.drain()
    return made


def app_of(bench, password: str | None = PASSWORD) -> Starlette:
    settings = ReceiverSettings(secret="csi-test-secret", db_path=bench.home / "other.db")
    return create_app(settings, extra_routes=routes(bench.rt, password, LocalLogin(bench.home)))


@pytest.mark.parametrize("path", ["/ui", "/ui/videos", "/ui/videos/vid00000001", "/ui/run", "/ui/deadletters"])
async def test_every_page_is_whole_and_its_texts_are_inert(bench, path):
    async with client(app_of(bench)) as http:
        page = await http.get(path)
    assert page.status_code == 200
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    words = {
        "/ui": "mystery",
        "/ui/videos/vid00000001": "is what was said",
        "/ui/videos": "vid00000003",
        "/ui/run": "summarized",
        "/ui/deadletters": "tr_vid00000003",
    }
    assert words[path] in page.text


async def test_the_list_of_videos_is_filtered_and_paged(bench):
    for number in range(60):
        bench.deliver(f"more{number:07d}", subject={"channel_id": "UCmore", "channel_title": "<b>Más</b>"})
    bench.drain()

    async def listed(http: httpx.AsyncClient, query: str) -> list[str]:
        page = await http.get(f"/ui/videos{query}")
        assert page.status_code == 200
        assert "<script" not in page.text
        assert "<b>M" not in page.text
        return re.findall(r'class="name" href="/ui/videos/([^"]+)"', page.text)

    async with client(app_of(bench)) as http:
        first, rest = await listed(http, ""), await listed(http, "?offset=50")
        assert (len(first), len(rest), len({*first, *rest})) == (50, 12, 62)
        assert 'href="/ui/videos?channel=UCmore&amp;offset=50"' in (await http.get("/ui/videos?channel=UCmore")).text
        assert len(await listed(http, "?channel=UCmore&offset=50")) == 10
        assert await listed(http, "?status=failed") == ["vid00000003"]
        assert await listed(http, "?q=ALERT(1)&status=summarized") == ["vid00000001"]
        assert await listed(http, "?q=more0000007&since=24h&pipeline=creator_watchlist_handler") == ["more0000007"]
        assert await listed(http, "?q=nothing+has+this+title") == []
        assert "No video matches" in (await http.get("/ui/videos?q=nothing+has+this+title")).text
        assert "60 videos" in (await http.get("/ui/videos?channel=UCmore")).text


@pytest.mark.parametrize(
    "query", ["status=x", "channel=%00", "since=1000y", "offset=-1", "offset=9999999999999", "pipeline=" + "x" * 5000,
              "q=%ff%fe", "status=failed&status=summarized&offset=%D9%A1"],
)  # fmt: skip
async def test_a_filter_value_that_does_not_exist_is_ignored(bench, query):
    async with client(app_of(bench)) as http:
        assert (await http.get(f"/ui/videos?{query}")).status_code == 200


async def test_an_unknown_video_is_404(bench):
    async with client(app_of(bench)) as http:
        assert (await http.get("/ui/videos/nope")).status_code == 404


@pytest.mark.parametrize(
    ("host", "headers"),
    [("10.0.0.9", {}), ("127.0.0.1", {"X-Forwarded-For": "1.2.3.4"}), ("127.0.0.1", {"Host": "evil.example"}),
     ("127.0.0.1", {})],
    ids=["another machine", "through a proxy", "foreign host name", "a proxy that shows by nothing"],
)  # fmt: skip
async def test_without_a_password_there_are_no_pages(bench, host, headers):
    async with client(app_of(bench, None), host, None) as http:
        for path in ("/ui", "/ui/run", "/ui/deadletters", "/ui/videos/vid00000001", "/stats"):
            answer = await http.get(path, headers=headers)
            assert answer.status_code in (403, 404)
            assert "vid00000001" not in answer.text


async def test_a_link_signs_one_browser_in_once(bench):
    async with client(app_of(bench, None), password=None) as http, client(app_of(bench, None), password=None) as other:
        assert (await http.get("/ui/login?key=")).status_code == 403
        key = make_key(bench.home)
        assert (bench.home / "login-link").stat().st_mode & 0o777 == 0o600
        assert (await http.get(f"/ui/login?key={key}x")).status_code == 403
        assert (await http.get(f"/ui/login?key={key}", headers={"Via": "1.1 proxy"})).status_code == 403
        answer = await http.get(f"/ui/login?key={key}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert (await http.get("/ui")).status_code == 200
        assert (await http.get(f"/ui/login?key={key}")).status_code == 403
        assert (await other.get(f"/ui/login?key={key}")).status_code == 403
        assert (await other.get("/ui")).status_code == 403


async def test_a_link_that_is_old_or_of_a_symlink_signs_nobody_in(bench):
    login = LocalLogin(bench.home)
    key = make_key(bench.home)
    os.utime(bench.home / "login-link", (1.0, 1.0))
    assert login.redeem(key) is None
    (bench.home / "elsewhere").write_text("known")
    (bench.home / "login-link").unlink()
    (bench.home / "login-link").symlink_to(bench.home / "elsewhere")
    assert login.redeem("known") is None


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_metrics_are_not_for_a_proxy_that_speaks_http_1_0(bench, version):
    """nginx does, with the Host of its upstream and without X-Forwarded-For, where it is not told otherwise."""
    app = app_of(bench, None)
    transport = httpx.ASGITransport(app=as_version(app, version), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8090") as http:
        assert (await http.get("/metrics")).status_code == (404 if version == "1.0" else 200)


def as_version(app: Starlette, version: str):
    async def call(scope, receive, send):
        await app(scope | {"http_version": version}, receive, send)

    return call


async def test_with_a_password_anybody_who_has_it_sees_it(bench):
    async with client(app_of(bench, "dashboard-word"), "10.0.0.9", None) as http:
        assert (await http.get("/ui")).status_code == 401
        wrong = base64.b64encode(b"x:wrong").decode()
        assert (await http.get("/ui", headers={"Authorization": f"Basic {wrong}"})).status_code == 401
        right = base64.b64encode(b"x:dashboard-word").decode()
        assert (await http.get("/ui", headers={"Authorization": f"Basic {right}"})).status_code == 200


async def test_guessing_the_password_locks_the_address_out_for_a_minute(bench):
    app = app_of(bench)
    async with client(app, "10.0.0.9", "wrong") as guesser, client(app, "10.0.0.9") as right, client(app) as other:
        for _ in range(GUESSES):
            assert (await guesser.get("/ui")).status_code == 401
        answer = await right.get("/ui")
        assert (answer.status_code, int(answer.headers["retry-after"]) <= 60) == (429, True)
        assert (await other.get("/ui")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, {"transcript_id": "job-1", "status": "completed"}, 401),
        ({"X-CSI-Webhook-Secret": "wrong"}, {"transcript_id": "job-1"}, 401),
        ({"X-CSI-Webhook-Secret": SECRET}, {"transcript_id": "unknown"}, 404),
        ({"X-CSI-Webhook-Secret": SECRET}, {"other": 1}, 400),
        ({"X-CSI-Webhook-Secret": SECRET}, ["x" * 20_000], 400),
    ],
    ids=["no secret", "wrong secret", "unknown job", "no job", "too long"],
)
async def test_a_webhook_that_is_not_ours_changes_nothing(bench, headers, body, status):
    async with client(app_of(bench)) as http:
        assert (await http.post(WEBHOOK_PATH, headers=headers, json=body)).status_code == status


async def test_a_hundred_webhooks_with_a_wrong_secret_are_one_log_line(bench, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(assemblyai_webhook.log, "warning", lambda sentence, **told: lines.append(told["reason"]))
    async with client(app_of(bench)) as http:
        for _ in range(100):
            await http.post(WEBHOOK_PATH, headers={"X-CSI-Webhook-Secret": "wrong"}, json={})
        await http.post(WEBHOOK_PATH, headers={"X-CSI-Webhook-Secret": SECRET}, json={})
    assert lines == ["bad_credentials", "invalid_body"]


async def test_the_webhook_only_wakes_and_the_worker_looks_itself(open_bench, clock, tmp_path):
    with FakeAssembly(waits=1) as assembly:
        (tmp_path / "audio").mkdir()
        (tmp_path / "audio" / "vid00000009.mp3").write_bytes(b"x")
        block = {
            "base_url": assembly.url,
            "audio_dir": tmp_path / "audio",
            "poll_seconds": 3600,
            "webhook_url": "https://ua.example/hook",
        }
        bench = open_bench(transcription={"providers": ["assemblyai"], "assemblyai": block})
        bench.deliver("vid00000009", text=None)
        bench.drain()
        assert assembly.submissions[0]["webhook_auth_header_value"] == SECRET
        assembly.jobs["job-1"]["left"] = 0
        db.database.close()
        async with client(app_of(bench)) as http:
            sent = {"transcript_id": "job-1", "status": "completed"}
            answer = await http.post(WEBHOOK_PATH, headers={"X-CSI-Webhook-Secret": SECRET}, json=sent)
            again = await http.post(WEBHOOK_PATH, headers={"X-CSI-Webhook-Secret": SECRET}, json=sent)
        assert (answer.status_code, again.status_code) == (200, 200)
        assert jobs.due(clock(), 5) == ["tr_vid00000009"]
        bench.drain()
        assert bench.status("vid00000009") == "summarized"


async def test_the_look_is_the_sidecars_own_file_and_no_other_file_is_served(bench):
    from csi.web import page_rendering

    async with client(app_of(bench)) as http:
        shown = (await http.get("/ui")).text
        address = shown.partition('<link rel="stylesheet" href="')[2].partition('"')[0]
        style = await http.get(address)
        assert style.content == page_rendering.files()["dashboard.css"]
        assert (style.headers["content-type"], style.status_code) == ("text/css; charset=utf-8", 200)
        assert (await http.get("/ui/static/csi.css")).status_code == 404
        assert (await http.get("/ui/static/..%2f__init__.py")).status_code == 404


async def test_videos_as_json_need_the_password_also_on_this_machine(bench):
    for path in ("/processing/videos", "/processing/videos/vid00000001?text=transcript"):
        for given, asked, status in ((None, PASSWORD, 403), (PASSWORD, None, 401), (PASSWORD, PASSWORD, 200)):
            async with client(app_of(bench, given), password=asked) as http:
                assert (await http.get(path)).status_code == status
