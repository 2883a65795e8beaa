"""Reading summaries: full-text search, filters, rendered texts, runs, digests, feeds, and the buttons of dead jobs."""

import json

import httpx
import pytest

from csi.processing.config import ProcessingSecrets
from csi.processing.pages.app import routes
from csi.processing.pages.reading import transcript_lines, with_times
from csi.processing.pipeline import maintenance, runs
from csi.processing.store import audit, dead_jobs, texts, videos
from csi.processing.store.videos import VideoFilter
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from tests.integration.test_processing_pages import PASSWORD, client

TOKEN = "admin-token-of-the-pages"
EVIL = "<script>alert(1)</script> [x](javascript:alert(1)) ![y](https://evil.example/i.png)"


def filled(open_bench, **settings):
    bench = open_bench(**settings)
    bench.deliver("vid00000001", text="The octopus opens a jar. " * 3, subject={"channel_title": "A creator"})
    bench.deliver("vid00000002", text="Nothing but water. " * 4_000 + "A walrus sings. ", subject={"kind": "short"})
    bench.deliver("vid00000003", text=None, subject={"title": EVIL}, pipeline="youtube_tutorial_explainer")
    segments = [{"start": 75, "text": f"{EVIL} is said.", "speaker": "A"}]
    (bench.home / "transcripts" / "vid00000003.json").write_text(json.dumps({"segments": segments}))
    (bench.home / "transcripts" / "vid00000004.json").write_text("{broken")
    bench.deliver("vid00000004", text=None)
    bench.drain()
    maintenance.maintain(bench.rt)
    return bench


def app_of(bench):
    bench.rt.secrets = ProcessingSecrets(admin=TOKEN)
    return create_app(
        ReceiverSettings(secret="csi-test-secret", db_path=bench.home / "o.db"), extra_routes=routes(bench.rt, PASSWORD)
    )


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_words_of_transcripts_and_summaries_are_found(open_bench, postgres_url, engine):
    filled(open_bench, **({"database": postgres_url} if engine == "postgresql" else {}))
    assert [one.video_id for one in texts.search("octopus jar", 10)] == ["vid00000001"]
    assert [one.video_id for one in texts.search("walrus", 10)] == ["vid00000002"], "far behind the first piece"
    assert "walrus" in texts.search("walrus", 10)[0].excerpt.lower()
    assert texts.search('" OR * NEAR( :', 10) == texts.search("", 10) == []
    assert [one.video_id for one in texts.search("creator", 10)] == ["vid00000001"]
    assert texts.due(10) == []
    found = {video.id for video in videos.page(9, wanted=VideoFilter(tag="t"))}
    assert len(found) == 4
    assert [video.id for video in videos.page(9, wanted=VideoFilter(kind="short"))] == ["vid00000002"]
    assert videos.page(9, wanted=VideoFilter(tag="other")) == videos.page(9, wanted=VideoFilter(ids=())) == []
    assert (videos.tags(9), videos.kinds()) == (["t"], ["short", "video"])


@pytest.mark.asyncio
async def test_the_page_and_the_json_have_the_same_filters(open_bench):
    bench = filled(open_bench)
    today = bench.rt.today()
    async with client(app_of(bench)) as http:
        for query, expected in {
            "text=octopus": ["vid00000001"],
            "text=nowhere": [],
            "kind=short": ["vid00000002"],
            f"tag=t&day={today}&status=summarized&kind=video": ["vid00000001", "vid00000003"],
            "day=2001-01-01": [],
            "pipeline=youtube_tutorial_explainer": ["vid00000003"],
        }.items():
            page = (await http.get(f"/ui/videos?{query}")).text
            assert (
                sorted(name for name in bench.statuses() if f'class="name" href="/ui/videos/{name}"' in page)
                == expected
            )
            listed = (await http.get(f"/processing/videos?{query}")).json()["videos"]
            assert sorted(one["video_id"] for one in listed) == expected
        assert (await http.get("/processing/videos?day=never")).status_code == 400
        assert (await http.get("/processing/videos?text=octopus")).json()["videos"][0]["bullets"]


@pytest.mark.asyncio
async def test_texts_are_rendered_and_inert_and_the_transcript_links_into_the_video(open_bench):
    bench = filled(open_bench)
    async with client(app_of(bench)) as http:
        page = await http.get("/ui/videos/vid00000003")
        assert 'href="https://www.youtube.com/watch?v=vid00000003&amp;t=75s"' in page.text
        assert "<h2>Main points</h2>" in page.text
        for word in ("<script", 'href="javascript', 'evil.example/i.png"', "i.ytimg.com"):
            assert word not in page.text
        assert "ytimg" not in page.headers["content-security-policy"]
        bench.rt.settings = bench.settings.model_copy(
            update={"pages": bench.settings.pages.model_copy(update={"thumbnails": True})}
        )
        page = await http.get("/ui/videos/vid00000003")
        assert "https://i.ytimg.com/vi/vid00000003/" in page.text
        assert "img-src 'self' https://i.ytimg.com;" in page.headers["content-security-policy"]


@pytest.mark.asyncio
async def test_the_points_of_a_summary_link_into_the_video(open_bench):
    bench = open_bench()
    said = ["Welcome back, everybody.", "An octopus opens", "the jar with eight arms.", "Walruses sing many songs."]
    segments = [{"start": 10 * at, "text": text} for at, text in enumerate(said)]
    (bench.home / "transcripts" / "vid00000001.json").write_text(json.dumps({"segments": segments}))
    bench.deliver("vid00000001", text=None)
    bench.drain()
    async with client(app_of(bench)) as http:
        page = (await http.get("/ui/videos/vid00000001")).text
    summary = page.partition("<h2>Summary</h2>")[2].partition("</section>")[0]
    link = '<a href="https://www.youtube.com/watch?v=vid00000001&amp;t={}s">{}</a>'
    assert f"An octopus opens the jar with eight arms. {link.format(10, '00:10')}" in summary
    assert f"Walruses sing many songs. {link.format(30, '00:30')}" in summary


def test_a_point_that_nobody_says_has_no_time():
    lines = transcript_lines("v", json.dumps({"segments": [{"start": 5, "text": "An octopus opens the jar."}]}))
    for point in ("- Something entirely different happens there.", "- Jar.", "An octopus opens the jar.", ""):
        assert with_times(point, lines) == point
    assert with_times("- An octopus opens the jar.", []) == "- An octopus opens the jar."


@pytest.mark.asyncio
async def test_past_runs_and_digests_are_pages_and_summaries_a_feed(open_bench, clock):
    bench = filled(open_bench)
    day = bench.rt.today()
    runs.update_runs(bench.rt)
    clock.move(86_400)
    runs.update_runs(bench.rt)
    async with client(app_of(bench)) as http:
        assert f"Run of {day}" in (await http.get(f"/ui/runs/{day}")).text
        digest = (await http.get(f"/ui/digests/{day}")).text
        assert "Title of vid00000001" in digest
        assert "<script" not in digest
        assert (
            (await http.get("/ui/runs/2001-01-01")).status_code == (await http.get("/ui/digests/x")).status_code == 404
        )
        atom = (await http.get("/processing/feed.atom")).text
        assert atom.count("<entry>") == 3
        assert "<script" not in atom
        items = (await http.get("/processing/feed.json")).json()["items"]
        assert {item["id"] for item in items} == {f"urn:csi:video:vid0000000{number}" for number in (1, 2, 3)}
    async with client(app_of(bench), password=None) as http:
        assert (await http.get("/processing/feed.atom")).status_code == 401


@pytest.mark.asyncio
async def test_dead_jobs_are_acted_on_with_the_admin_token_only(open_bench):
    bench = filled(open_bench)
    job = "tr_vid00000004"

    async def press(http: httpx.AsyncClient, action: str, token: str = TOKEN) -> httpx.Response:
        return await http.post("/ui/deadletters", data={"job": job, "action": action, "token": token})

    async with client(app_of(bench)) as http:
        assert "Admin token" in (await http.get("/ui/deadletters")).text
        assert (await press(http, "abandon", "wrong-token")).status_code == 403
        assert (await press(http, "destroy")).status_code == 400
        assert dead_jobs.find(job).state == "pending"
        assert (await press(http, "abandon")).status_code == 303
        assert (bench.status("vid00000004"), dead_jobs.find(job).state) == ("skipped", "abandoned")
        assert (await press(http, "retry")).status_code == 409
        assert (await press(http, "reopen")).status_code == 303
        assert (await press(http, "retry")).status_code == 303
        assert dead_jobs.find(job).state == "retrying"
    assert {one.user_id for one in audit.search(limit=50, agent="operator")} == {"dashboard"}
    async with client(app_of(bench), password=None) as http:
        assert (await press(http, "retry")).status_code == 401
