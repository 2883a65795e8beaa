"""The receiver's dashboard and the webhook: who may read, and titles that contain markup."""

import base64

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from csi.processing import assemblyai_webhook
from csi.processing.assemblyai_webhook import WEBHOOK_PATH
from csi.processing.pages.app import routes
from csi.processing.store import db, jobs
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from tests.fakes.providers import FakeAssembly

pytestmark = pytest.mark.asyncio
SECRET = "webhook-secret-1"
EVIL = "</pre><script>alert(1)</script>"


def client(app: Starlette, host: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(host, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8090")


@pytest_asyncio.fixture
async def bench(open_bench):
    made = open_bench()
    made.deliver("vid00000001", subject={"title": EVIL}, text=f"{EVIL} is what was said. And more.")
    made.deliver("vid00000002", pipeline="mystery", subject={"title": EVIL})
    (made.home / "transcripts" / "vid00000003.json").write_text("{broken")
    made.deliver("vid00000003", text=None)
    made.drain()
    return made


def app_of(bench, password: str | None = None) -> Starlette:
    settings = ReceiverSettings(secret="csi-test-secret", db_path=bench.home / "other.db")
    return create_app(settings, extra_routes=routes(bench.rt, password))


@pytest.mark.parametrize("path", ["/ui", "/ui/videos/vid00000001", "/ui/run", "/ui/deadletters"])
async def test_every_page_is_whole_and_its_texts_are_inert(bench, path):
    async with client(app_of(bench)) as http:
        page = await http.get(path)
    assert page.status_code == 200
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    words = {
        "/ui": "mystery",
        "/ui/videos/vid00000001": "is what was said",
        "/ui/run": "summarized",
        "/ui/deadletters": "tr_vid00000003",
    }
    assert words[path] in page.text


async def test_an_unknown_video_is_404(bench):
    async with client(app_of(bench)) as http:
        assert (await http.get("/ui/videos/nope")).status_code == 404


@pytest.mark.parametrize(
    ("host", "headers"),
    [("10.0.0.9", {}), ("127.0.0.1", {"X-Forwarded-For": "1.2.3.4"}), ("127.0.0.1", {"Host": "evil.example"})],
    ids=["another machine", "through a proxy", "foreign host name"],
)
async def test_without_a_password_only_this_machine_sees_it(bench, host, headers):
    async with client(app_of(bench), host) as http:
        assert (await http.get("/ui", headers=headers)).status_code == 404


async def test_with_a_password_anybody_who_has_it_sees_it(bench):
    async with client(app_of(bench, "dashboard-word"), "10.0.0.9") as http:
        assert (await http.get("/ui")).status_code == 401
        wrong = base64.b64encode(b"x:wrong").decode()
        assert (await http.get("/ui", headers={"Authorization": f"Basic {wrong}"})).status_code == 401
        right = base64.b64encode(b"x:dashboard-word").decode()
        assert (await http.get("/ui", headers={"Authorization": f"Basic {right}"})).status_code == 200


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
