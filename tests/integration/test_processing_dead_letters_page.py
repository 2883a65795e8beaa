"""The dead letters page: dead jobs of processing, and dead letters of a sidecar that is called over HTTP."""

import re

import httpx
import pytest

from csi.processing.pages.app import routes
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from ops.screenshot import READ_TOKEN, bury, open_show, served
from tests.rigs.processing_bench import ProcessingBench

pytestmark = pytest.mark.asyncio
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def sidecar(tmp_path):
    """A real ingester with one dead letter whose text is hostile."""
    from csi.pipeline.schedule import sync_watches
    from csi.store import db
    from csi.store.models import Watch

    (tmp_path / "sender").mkdir()
    rt = open_show(tmp_path / "sender")
    with db.reading():
        sync_watches(rt)
        bury(Watch.get_by_id(1), 1, rt.now() - 60, "A title", f"http 422: {EVIL}", "event", 422)
    with served(rt) as url:
        yield url


def dead_job(open_bench, **settings) -> ProcessingBench:
    made = open_bench(**settings)
    (made.home / "transcripts" / "vid00000003.json").write_text("{broken")
    made.deliver("vid00000003", text=None)
    made.drain()
    return made


async def page_of(bench: ProcessingBench, token: str | None, path: str = "/ui/deadletters") -> httpx.Response:
    secrets = bench.rt.secrets.__class__(ingester=token)
    bench.start(secrets)
    settings = ReceiverSettings(secret="csi-test-secret", db_path=bench.home / "other.db")
    app = create_app(settings, extra_routes=routes(bench.rt, "dashboard-word"))
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1234))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost:8090", auth=("any", "dashboard-word")
    ) as http:
        return await http.get(path)


def rows_of(page: httpx.Response) -> list[str]:
    table = re.search(r'<table class="list" id="letters">.*?</table>', page.text, re.S)
    assert table
    return re.findall(r"<tr><td.*?</tr>", table[0], re.S)


async def test_jobs_and_events_stand_in_one_table_the_newest_first(open_bench, sidecar):
    bench = dead_job(open_bench, ingester_url=sidecar)
    page = await page_of(bench, READ_TOKEN)
    event, job = rows_of(page)  # the bench's clock stands in the past
    assert "tr_vid00000003" in job
    assert "csi processing dlq show tr_vid00000003" in job
    assert "src:yt:show:show0000001" in event
    assert f'href="{sidecar}/dead-letters/1"' in event
    assert "<script" not in page.text
    assert "&lt;script&gt;" in event
    assert READ_TOKEN not in page.text


async def test_closed_letters_are_shown_only_when_all_are_wanted(open_bench, sidecar):
    from csi.processing.pipeline import dead_job_actions

    bench = dead_job(open_bench, ingester_url=sidecar)
    dead_job_actions.close(bench.rt, "tr_vid00000003", "resolved", "by hand")
    assert len(rows_of(await page_of(bench, READ_TOKEN))) == 1
    assert len(rows_of(await page_of(bench, READ_TOKEN, "/ui/deadletters?state=all"))) == 2


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        (None, None, "ingester_url is not set"),
        ("http://127.0.0.1:9", None, "CSI_ADMIN_READ_TOKEN is not set"),
        ("http://127.0.0.1:9", READ_TOKEN, "the request failed"),
        ("sidecar", "a-wrong-token-0123", "it rejected the token"),
    ],
    ids=["no address", "no token", "unreachable", "wrong token"],
)
async def test_where_the_sender_cannot_be_asked_the_page_says_so_and_shows_the_jobs(
    open_bench, request, url, token, words
):
    where = request.getfixturevalue("sidecar") if url == "sidecar" else url
    page = await page_of(dead_job(open_bench, ingester_url=where), token)
    assert page.status_code == 200
    assert words in page.text
    assert [row for row in rows_of(page) if "tr_vid00000003" in row]
