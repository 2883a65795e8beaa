"""The catalogue in the dashboard and in the admin API."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from csi.catalog import channel_admin
from csi.runtime import Runtime
from csi.store import db, watches
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.jobs import NewCatalogJob
from csi.web import svg_charts
from csi.web.app import create_app
from ops.screenshot import TOKEN, open_show
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube

UC = "UC" + "a" * 22
HOSTILE = """</title><script>window.hit=1</script>'"&{{7*7}}"""
DAY = 86_400.0
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    found = open_show(tmp_path)
    now = found.now()
    channels.add(UC, HOSTILE, 5, now)
    for days in range(10):
        numbers = {"subscriber_count": 100 + days, "video_count": 3, "view_count": None if days == 4 else 1_000 * days}
        gains = {"daily_views": 5, "daily_subscribers": None, "daily_videos": 0}
        stats.save_channel(stats.make_channel_stats(UC, now - (10 - days) * DAY, **numbers, **gains))
    facts = videos.VideoFacts("vid-1", UC, HOSTILE, None, now - 3_600, view_count=5_000)
    videos.save([(facts, videos.RefreshPlan("hot", now))], now)
    stats.save_videos([stats.VideoStats("s1", "vid-1", now, 5_000, None, None, 777, None)])
    jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "k", channel_id=UC), now)
    jobs.mark_dead(jobs.claim(now), HOSTILE, now)
    return found


@pytest.fixture
def app(rt: Runtime) -> Starlette:
    return create_app(lambda: rt)


@pytest_asyncio.fixture
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as one:
        await one.post("/login", data={"token": TOKEN, "next": "/"})
        yield one


def job_id() -> str:
    return jobs.page()[0].id


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["/sources?show=tracked", f"/channels/{UC}", "/channels/hot", "/jobs", "/jobs?status=dead", "/jobs/ID"]
)
async def test_a_page_escapes_the_text_of_channels_and_videos(client, path):
    answer = await client.get(path.replace("ID", job_id()))
    assert answer.status_code == 200
    assert "<script>window" not in answer.text
    assert "{{7*7}}" in answer.text or path == "/channels/hot" or "49" not in re.sub(r"\d{3,}", "", answer.text)


@pytest.mark.asyncio
async def test_a_channel_has_its_curves_with_gaps(client):
    page = (await client.get(f"/channels/{UC}?days=30")).text
    drawn = re.findall(r'<svg[^>]*aria-label="([^"]+)"[^>]*>(.*?)</svg>', page, re.DOTALL)
    by_title = {label.partition(":")[0]: body for label, body in drawn}
    assert by_title["Subscribers"].count("<polyline") == 1
    assert by_title["Views"].count("<polyline") == 2, "a day that is not known is a gap, not a line"


@pytest.mark.asyncio
async def test_the_hot_videos_and_the_dead_jobs_are_told(client):
    assert "+777" in (await client.get("/channels/hot")).text
    assert 'class="count">1<' in (await client.get("/jobs")).text


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/channels/UCnone", "/jobs/none"])
async def test_what_is_not_there_is_404(client, path):
    assert (await client.get(path)).status_code == 404


@pytest.mark.asyncio
async def test_a_channel_is_paused_and_a_job_retried_by_a_form(client):
    page = (await client.get(f"/channels/{UC}")).text
    token = re.search(r'name="form_token" value="(\w+)"', page)[1]
    await client.post(f"/channels/{UC}/pause", data={"form_token": token})
    assert channels.find(UC).status == "paused"
    await client.post(f"/channels/{UC}/resume", data={"form_token": token})
    assert channels.find(UC).status == "active"
    dead = jobs.page(status="dead")[0].id
    answer = await client.post(f"/jobs/{dead}/retry", data={"form_token": token})
    assert answer.status_code == 303
    assert jobs.find(dead).status == "pending"


# ── the admin API ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def yt(rt: Runtime) -> Any:
    key = next(iter(rt.settings.secrets.named.values())).get_secret_value()
    with simulated_youtube(channels=1, videos=2, api_key=key) as site:
        sources = {
            name: source.model_copy(update={"api_base_url": site.api_base_url})
            for name, source in rt.settings.sources.items()
        }
        fields = {name: source.model_fields_set | {"api_base_url"} for name, source in sources.items()}
        for name, source in sources.items():
            object.__setattr__(source, "__pydantic_fields_set__", fields[name])
        rt.settings = rt.settings.model_copy(update={"sources": sources})
        rt.adapters.clear()
        yield site


@pytest.mark.asyncio
async def test_registering_is_201_then_409_and_400_with_the_reason(client, yt: SimulatedYouTube):
    what = {"what": yt.channels[0], "priority": 8}
    first = await client.post("/admin/channels", json=what, headers=ADMIN)
    assert first.status_code == 201, first.text
    assert first.json()["channel"]["priority"] == 8
    assert jobs.find(first.json()["job"]).status == "pending"
    assert (await client.post("/admin/channels", json=what, headers=ADMIN)).status_code == 409
    for wrong in ("nonsense", "UC" + "z" * 22, "PL" + "z" * 20, "@nobody-of-that-name"):
        refused = await client.post("/admin/channels", json={"what": wrong}, headers=ADMIN)
        assert (refused.status_code, refused.json()["detail"].startswith("what: ")) == (400, True)


@pytest.mark.asyncio
async def test_the_catalogue_is_read_and_managed_by_the_api(client):
    async def get(path: str) -> Any:
        return (await client.get(f"/admin{path}", headers=ADMIN)).json()

    async def post(path: str, **body: Any) -> Any:
        answer = await client.post(f"/admin{path}", json=body, headers=ADMIN)
        return answer.json() | {"code": answer.status_code}

    assert [row["id"] for row in (await get("/channels"))["channels"]] == [UC]
    assert (await get(f"/channels/{UC}"))["known_videos"] == 1
    assert len((await get(f"/channels/{UC}/trend?days=7"))["days"]) == 6
    assert (await get("/videos/hot"))["videos"][0]["hourly_views"] == 777
    assert (await get(f"/videos?channel={UC}"))["videos"][0]["id"] == "vid-1"
    assert (await get("/videos/vid-1"))["stats"][0]["like_count"] is None
    assert (await get("/jobs?status=dead"))["counts"]["dead"] == 1
    assert [event["event_type"] for event in (await get(f"/jobs/{job_id()}"))["history"]] == [
        "started",
        "dead_lettered",
    ]
    assert (await post(f"/channels/{UC}/pause"))["changed"]
    assert (await post(f"/channels/{UC}/resume"))["job"]
    assert (await post(f"/channels/{UC}/priority", priority=9))["priority"] == 9
    assert (await post(f"/channels/{UC}/backfill"))["duplicate"]
    added = await post("/jobs", type="REFRESH_CHANNEL_STATS")
    assert (added["code"], added["duplicate"]) == (201, False)
    assert (await post("/jobs", type="REFRESH_CHANNEL_STATS"))["code"] == 200
    assert (await post("/jobs", type="NO_SUCH"))["code"] == 400
    assert (await post("/jobs", type="BACKFILL_CHANNEL", channel="UCnone"))["code"] == 400
    assert (await post(f"/jobs/{added['job']['id']}/retry"))["code"] == 409
    assert (await post(f"/jobs/{added['job']['id']}/cancel"))["status"] == "dead"
    assert (await post(f"/jobs/{added['job']['id']}/retry"))["status"] == "pending"
    assert (await post("/channels/UCnone/pause"))["code"] == 404


WRONG = {
    "GET": [
        "/channels?status=none", "/channels?x=1", f"/channels/{UC}/trend?days=0", f"/channels/{UC}/trend?days=1e3",
        "/videos", "/videos?channel=none", f"/videos?channel={UC}&limit=0", f"/videos?channel={UC}&before=none",
        "/videos/hot?limit=501", "/videos/none", "/videos/%00", "/jobs?type=NONE", "/jobs?status=none",
        "/jobs?limit=-1", "/jobs?before=%00", "/jobs/none", "/jobs/%00", "/channels/%00", "/channels/none",
    ],
    "POST": [
        ("/channels", {"what": UC, "priority": True}), ("/channels", {"what": UC, "videos": 10**30}),
        ("/channels", {"what": "\0"}), ("/channels", {"what": "@\ud800"}),
        ("/channels", {"what": 5}), (f"/channels/{UC}/priority", {"priority": "5"}),
        (f"/channels/{UC}/backfill", {"videos": 0}), ("/jobs", {"type": "REFRESH_HOT_VIDEOS", "videos": ["\0"]}),
        ("/jobs", {"type": "REFRESH_HOT_VIDEOS", "videos": ["\ud800"]}),
        ("/jobs", {"type": "REFRESH_HOT_VIDEOS", "videos": ["unknown-vid"]}),
        ("/jobs", {"type": "REFRESH_HOT_VIDEOS", "delay_seconds": 31 * DAY}),
        ("/jobs", {"type": "BACKFILL_CHANNEL", "channel": "\0"}), ("/jobs/none/cancel", {}),
    ],
}  # fmt: skip


async def send(client: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
    """In ASCII, the only way in which a lone surrogate can be sent."""
    headers = ADMIN | {"Content-Type": "application/json"}
    return await client.post(f"/admin{path}", content=json.dumps(body), headers=headers)


@pytest.mark.asyncio
async def test_whatever_is_wrong_is_4xx_with_a_sentence(client):
    gets = [await client.get(f"/admin{path}", headers=ADMIN) for path in WRONG["GET"]]
    posts = [await send(client, path, body) for path, body in WRONG["POST"]]
    for answer in [*gets, *posts]:
        assert answer.status_code in (400, 404), (answer.request.url, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]


@pytest.mark.asyncio
async def test_the_api_tells_of_channels_what_the_command_tells(client):
    row = (await client.get("/admin/channels?status=active", headers=ADMIN)).json()
    assert row["channels"] == [] or row["channels"][0]["status"] == "active"
    page = (await client.get("/admin/channels", headers=ADMIN)).json()
    assert {"daily_views", "daily_subscribers", "daily_videos"} <= page["channels"][0].keys()
    assert (page["units_per_day"], page["share"]) == (2, 3_000)
    one = (await client.get(f"/admin/channels/{UC}", headers=ADMIN)).json()
    assert [job["status"] for job in one["jobs"]] == ["dead"]
    assert len(one["stats"]) == 6
    days = (await client.get(f"/admin/channels/{UC}/trend?days=7", headers=ADMIN)).json()["days"]
    assert days[0]["date"] == days[0]["captured_at"][:10]


@pytest.mark.asyncio
async def test_videos_come_page_by_page_and_none_twice(client, rt):
    now = rt.now()
    facts = [videos.VideoFacts(f"same-{n}", UC, "T", None, now - 9_999) for n in range(5)]
    videos.save([(one, videos.RefreshPlan("hot", now)) for one in facts], now)
    seen, following = [], ""
    while following is not None:
        page = (await client.get(f"/admin/videos?channel={UC}&limit=2&before={following}", headers=ADMIN)).json()
        seen += [row["id"] for row in page["videos"]]
        following = page["next"]
    assert seen == ["vid-1", *(f"same-{n}" for n in reversed(range(5)))]


@pytest.mark.asyncio
async def test_an_error_is_told_without_secrets(client):
    job = jobs.enqueue(NewCatalogJob("RSS_POLL_CHANNEL", "s"), 1.0).job
    jobs.mark_dead(jobs.claim(2.0), "refused: X-Goog-Api-Key: AIzaSyA1234567890abcdefghijklmnopqrstuv", 2.0)
    for path in ("/admin/jobs", f"/admin/jobs/{job.id}"):
        answer = (await client.get(path, headers=ADMIN)).text
        assert "refused" in answer
        assert "AIzaSy" not in answer


# ── curves ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_curve_without_counts_says_so():
    assert svg_charts.curve("Views", []).empty_text
    assert svg_charts.curve("Views", [(1.0, None)]).empty_text


def test_a_count_between_two_gaps_is_a_dot():
    found = svg_charts.curve("Views", [(0.0, None), (1.0, 5), (2.0, None), (3.0, 6), (4.0, 7)])
    assert (len(found.dots), len(found.lines)) == (1, 1)


def test_a_flat_curve_is_drawn_in_the_middle():
    found = svg_charts.curve("Views", [(0.0, 5), (1.0, 5)])
    assert {spot.partition(",")[2] for spot in found.lines[0].split()} == {f"{8 + (180 - 8 - 22) / 2:.1f}"}


@pytest.mark.parametrize(
    ("value", "text"), [(7_190_986_011, "7.19B"), (2_290_000, "2.29M"), (190_000, "190k"), (9_999, "9,999"), (-3, "-3")]
)
def test_big_numbers_are_short(value, text):
    assert svg_charts.short(value) == text


@pytest.mark.asyncio
async def test_statistics_are_switched_off_and_on_and_the_channel_is_removed(client, rt):
    watches.sync([watches.WantedWatch("youtube_channel_rss", UC, "One", None, (), "standard", 300.0, "all")], rt.now())
    number = watches.find_id("youtube_channel_rss", UC)
    listed = (await client.get("/sources?show=tracked")).text
    assert f'action="/sources/{number}/untrack"' in listed
    token = {"form_token": re.search(r'name="form_token" value="(\w+)"', listed)[1]}
    await client.post(f"/sources/{number}/untrack", data=token)
    assert (channels.find(UC).status, watches.find(number).state) == ("paused", "active")
    await client.post("/sources/bulk", data=token | {"act": "track", f"watch-{number}": "yes"})
    assert (channels.find(UC).status, watches.find(number).state) == ("active", "active")
    await client.post(f"/channels/{UC}/remove", data=token)
    assert channels.find(UC) is not None
    await client.post(f"/channels/{UC}/remove", data=token | {"sure": "yes"})
    assert (channels.find(UC), watches.find(number).state) == (None, "active")
    for table in ("videos", "video_stats", "channel_stats", "jobs", "job_events"):
        assert db.number(f"SELECT COUNT(*) FROM {table}") == 0, table


@pytest.mark.asyncio
async def test_a_channel_without_a_watch_is_in_the_list_of_sources(client):
    text = (await client.get("/sources")).text
    assert f'<tr id="channel-{UC}"' in text
    assert "not watched" in text


def test_the_api_says_what_removing_a_channel_would_delete(rt):
    counted = channel_admin.remove(rt, channels.find(UC), dry_run=True)
    assert (counted["videos"], counted["channel_stats"], counted["channels"]) == (1, 10, 1)
    jobs.claim(rt.now())
    jobs.enqueue(NewCatalogJob("REFRESH_CHANNEL_STATS", "k2", channel_id=UC), rt.now())
    assert jobs.claim(rt.now()) is not None
    with pytest.raises(channel_admin.CatalogRefused, match="is running"):
        channel_admin.remove(rt, channels.find(UC))


# ── pages across channels and videos ────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_a_video_has_a_page_with_its_curve(client, rt):
    now = rt.now()
    rows = [
        stats.VideoStats(f"c{hour}", "vid-1", now - hour * 3_600, 5_000 - 100 * hour, None, None, 100, None, 1.0)
        for hour in range(1, 20)
    ]
    stats.save_videos(rows[:1])
    for row in rows[1:]:
        stats.save_videos([row])
    page = await client.get("/videos/vid-1")
    assert page.status_code == 200
    assert "<polyline" in page.text
    assert "window.hit=1</script>" not in page.text
    assert (await client.get("/videos/vid-1?days=nonsense")).status_code == 200
    assert (await client.get("/videos/no-such-one")).status_code == 404


@pytest.mark.asyncio
async def test_top_movers_are_listed_by_their_gain(client, rt):
    now = rt.now()
    facts = videos.VideoFacts("vid-2", UC, "The fast one", None, now - 90_000, view_count=9_000)
    videos.save([(facts, videos.RefreshPlan("hot", now))], now)
    stats.save_videos([stats.VideoStats("s2", "vid-2", now, 9_000, None, None, 10, 8_000, 1.0)])
    page = (await client.get("/channels/movers")).text
    assert "The fast one" in page
    assert "+8,000" in page
    found = (await client.get("/admin/videos/movers", headers=ADMIN)).json()
    assert [row["id"] for row in found["videos"]] == ["vid-2"]


@pytest.mark.asyncio
async def test_channels_are_compared_day_by_day(client, rt):
    other = "UC" + "b" * 22
    channels.add(other, "Another", 5, rt.now())
    for days in range(3):
        gains = {"daily_views": 70 + days, "daily_subscribers": None, "daily_videos": 0}
        counts = {"subscriber_count": 1, "video_count": 1, "view_count": 1}
        stats.save_channel(stats.make_channel_stats(other, rt.now() - (10 - days) * DAY, **counts, **gains))
    page = await client.get(f"/channels/compare?id={UC}&id={other}&days=30")
    assert page.status_code == 200
    assert page.text.count("<polyline") == 2
    assert ">72<" in page.text
    query = f"/admin/channels/compare?channels={UC},{other}&measure=daily_views"
    found = (await client.get(query, headers=ADMIN)).json()
    assert [row["id"] for row in found["channels"]] == [UC, other]
    assert found["days"][0]["values"] == [5, 70]
    alone = await client.get(f"/admin/channels/compare?channels={UC}", headers=ADMIN)
    assert alone.status_code == 400
    assert (await client.get("/channels/compare")).status_code == 200


@pytest.mark.parametrize(
    ("low", "high", "is_gain", "ends"),
    [
        (1_000_000, 1_000_100, False, (950_051, 1_050_049 + 1)),
        (0, 50, False, (0, 50)),
        (40, 50, True, (0, 50)),
        (-30, -10, True, (-30, 0)),
        (5, 5, False, (4, 6)),
    ],
)
def test_a_small_change_does_not_fill_the_axis(low, high, is_gain, ends):
    found = svg_charts.scale(low, high, is_gain=is_gain)
    assert found[1] - found[0] >= svg_charts.LEAST_SPAN * max(abs(low), abs(high))
    assert found[0] <= low <= high <= found[1]
    if abs(high) < 100:
        assert found == ends


def test_the_change_of_counting_is_marked_where_it_lies_in_the_curve():
    points = [(0.0, 5), (100.0, 9)]
    assert svg_charts.curve("Views", points, note=(50.0, "counted differently")).notes[0].text == "counted differently"
    assert svg_charts.curve("Views", points, note=(500.0, "later")).notes == ()
