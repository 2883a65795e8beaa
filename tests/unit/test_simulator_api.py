"""The simulated Data API: paging, hidden items, quota, errors, and the control API."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from csi.simulator.youtube.api_errors import REASONS
from csi.simulator.youtube.data_api import Quota, iso_duration, page_offset, page_token
from csi.simulator.youtube.world import World
from tests.unit.test_simulator_feed import CAPTURES, T0, Visitor

API = "/youtube/v3"
PARTS = "id,snippet,contentDetails,status"


@pytest.fixture
def world() -> World:
    return World(seed=2)


@pytest.fixture
def owner(world: World) -> str:
    return world.add_channel("Curator", at=T0).id


@pytest.fixture
def artist(world: World) -> str:
    return world.add_channel("Artist", at=T0, handle="@TheArtist").id


@pytest.fixture
def ref(world: World, owner: str) -> str:
    return world.add_playlist("Collection", owner=owner, at=T0).id


def fill(world: World, ref: str, channel: str, number: int) -> list[str]:
    made = [world.upload(channel, f"v{n}", at=T0 - 100 + n).id for n in range(number)]
    for place, video in enumerate(made):
        world.add_to_playlist(ref, video, at=T0 + place)
    return made


def call(visitor: Visitor, endpoint: str, **params: str) -> httpx.Response:
    return visitor.get(f"{API}/{endpoint}", {"X-Goog-Api-Key": "demo-key"}, **{"part": PARTS, **params})


def walk(visitor: Visitor, ref: str, size: str = "50") -> list[dict[str, Any]]:
    pages, token = [], {}
    while True:
        page = call(visitor, "playlistItems", playlistId=ref, maxResults=size, **token).json()
        pages.append(page)
        if "nextPageToken" not in page:
            return pages
        token = {"pageToken": page["nextPageToken"]}


def video_ids(pages: list[dict[str, Any]]) -> list[str]:
    return [item["contentDetails"]["videoId"] for page in pages for item in page["items"]]


def test_an_item_has_the_real_shape(world: World, ref: str, owner: str, artist: str) -> None:
    (video,) = fill(world, ref, artist, 1)
    page = call(Visitor(world), "playlistItems", playlistId=ref).json()
    assert list(page) == ["kind", "etag", "items", "pageInfo"]
    assert page["pageInfo"] == {"totalResults": 1, "resultsPerPage": 5}
    item = page["items"][0]
    assert list(item) == ["kind", "etag", "id", "snippet", "contentDetails", "status"]
    snippet = item["snippet"]
    assert snippet["publishedAt"] == "2026-09-21T14:13:20Z"
    assert (snippet["channelId"], snippet["videoOwnerChannelId"]) == (owner, artist)
    assert (snippet["playlistId"], snippet["position"]) == (ref, 0)
    assert snippet["resourceId"] == {"kind": "youtube#video", "videoId": video}
    assert set(snippet["thumbnails"]) == {"default", "medium", "high", "standard", "maxres"}
    assert item["contentDetails"] == {"videoId": video, "videoPublishedAt": "2026-09-21T14:11:40Z"}
    assert item["status"] == {"privacyStatus": "public"}


@pytest.mark.skipif(not CAPTURES.exists(), reason="the corpus of captured answers is not beside the project")
def test_fields_come_in_the_captures_order(world: World, artist: str) -> None:
    world.upload(artist, "v", at=T0)
    theirs = json.loads((CAPTURES / "youtube_api/playlistItems_uploads_UU_2.json").read_text())["items"][0]
    answer = call(Visitor(world), "playlistItems", playlistId="UU" + artist[2:], part="snippet,contentDetails")
    ours = answer.json()["items"][0]
    assert list(ours) == list(theirs)
    assert [list(ours[name]) for name in ("snippet", "contentDetails")] == [
        list(theirs[name]) for name in ("snippet", "contentDetails")
    ]


def test_paging_reads_all_in_order(world: World, ref: str, artist: str) -> None:
    made = fill(world, ref, artist, 123)
    pages = walk(Visitor(world), ref)
    assert [len(page["items"]) for page in pages] == [50, 50, 23]
    assert video_ids(pages) == made
    assert "prevPageToken" not in pages[0]
    assert page_offset(pages[1]["prevPageToken"]) == 0
    assert len(call(Visitor(world), "playlistItems", playlistId=ref).json()["items"]) == 5


def test_a_short_page_is_not_the_last(world: World, ref: str, artist: str) -> None:
    made = fill(world, ref, artist, 120)
    pages = walk(Visitor(world, short_pages=True), ref)
    assert [len(page["items"]) for page in pages] == [49, 49, 22]
    assert {page["pageInfo"]["resultsPerPage"] for page in pages} == {50}
    assert video_ids(pages) == made


def test_a_full_last_page_ends_the_walk(world: World, ref: str, artist: str) -> None:
    fill(world, ref, artist, 50)
    assert len(walk(Visitor(world), ref)) == 1


def test_an_item_added_at_the_top_shifts_the_pages(world: World, ref: str, artist: str) -> None:
    made, visitor = fill(world, ref, artist, 8), Visitor(world)
    token = call(visitor, "playlistItems", playlistId=ref).json()["nextPageToken"]
    world.add_to_playlist(ref, world.upload(artist, "new", at=T0).id, at=T0, at_top=True)
    second = call(visitor, "playlistItems", playlistId=ref, pageToken=token).json()
    assert second["items"][0]["contentDetails"]["videoId"] == made[4]


def test_page_tokens_round_trip_and_are_opaque() -> None:
    assert page_token(5) == "EAAaBlBUOkNBVQ"
    for offset in (0, 1, 50, 127, 128, 4950, 10**6):
        assert page_offset(page_token(offset)) == offset


@pytest.mark.parametrize("privacy", ["private", "deleted"])
def test_hidden_items_stay_in_the_list(world: World, ref: str, artist: str, privacy: Any) -> None:
    video, _ = fill(world, ref, artist, 2)
    world.set_privacy(video, privacy, at=T0)
    item = call(Visitor(world), "playlistItems", playlistId=ref).json()["items"][0]
    words = {
        "private": ("Private video", "This video is private."),
        "deleted": ("Deleted video", "This video is unavailable."),
    }
    assert (item["snippet"]["title"], item["snippet"]["description"]) == words[privacy]
    assert item["snippet"]["thumbnails"] == {}
    assert "videoOwnerChannelId" not in item["snippet"]
    assert item["contentDetails"] == {"videoId": video}
    assert item["status"]["privacyStatus"] == ("private" if privacy == "private" else "public")


def test_uploads_are_newest_first_and_without_hidden_ones(world: World, artist: str) -> None:
    made = [world.upload(artist, f"v{n}", at=T0 + n).id for n in range(4)]
    world.delete(made[1], at=T0)
    uploads = "UU" + artist[2:]
    items = call(Visitor(world), "playlistItems", playlistId=uploads).json()["items"]
    assert [item["contentDetails"]["videoId"] for item in items] == [made[3], made[2], made[0]]
    assert all(item["snippet"]["publishedAt"] == item["contentDetails"]["videoPublishedAt"] for item in items)


def test_items_by_id_and_by_video(world: World, ref: str, artist: str) -> None:
    made, visitor = fill(world, ref, artist, 3), Visitor(world)
    by_video = call(visitor, "playlistItems", playlistId=ref, videoId=made[1]).json()["items"]
    by_id = call(visitor, "playlistItems", id=by_video[0]["id"]).json()["items"]
    assert by_id == by_video
    assert call(visitor, "playlistItems", id="no-such-item").json()["items"] == []


def test_videos_leave_out_what_cannot_be_read(world: World, artist: str) -> None:
    shown, secret, gone = (world.upload(artist, name, at=T0).id for name in ("a", "b", "c"))
    world.set_privacy(secret, "private", at=T0)
    world.delete(gone, at=T0)
    parts = "snippet,contentDetails,statistics,status,liveStreamingDetails"
    wanted = f"{shown},{secret},{gone},AAAAAAAAAAA,{shown}"
    page = call(Visitor(world), "videos", part=parts, id=wanted).json()
    (item,) = page["items"]
    assert item["id"] == shown
    assert all(isinstance(number, str) for number in item["statistics"].values())
    assert item["contentDetails"]["caption"] in ("true", "false")
    assert "liveStreamingDetails" not in item


def test_streams_have_no_length_until_they_end(world: World, artist: str) -> None:
    video = world.upload(artist, "stream", at=T0, kind="upcoming").id
    visitor, parts = Visitor(world), "snippet,contentDetails,liveStreamingDetails"

    def seen() -> tuple[str, str, set[str]]:
        item = call(visitor, "videos", part=parts, id=video).json()["items"][0]
        live = item["liveStreamingDetails"]
        return item["snippet"]["liveBroadcastContent"], item["contentDetails"]["duration"], set(live)

    assert seen() == ("upcoming", "P0D", {"scheduledStartTime"})
    world.start_live(video, at=T0 + 60)
    assert seen() == ("live", "P0D", {"scheduledStartTime", "actualStartTime", "concurrentViewers"})
    world.end_live(video, at=T0 + 3720)
    assert seen() == ("none", "PT1H1M", {"scheduledStartTime", "actualStartTime", "actualEndTime"})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "P0D"), (7, "PT7S"), (1267, "PT21M7S"), (3720, "PT1H2M"), (93600, "P1DT2H"), (86400, "P1D")],
)
def test_durations(seconds: int, text: str) -> None:
    assert iso_duration(seconds) == text


def test_channels_by_id_and_by_handle(world: World, artist: str, owner: str) -> None:
    visitor, parts = Visitor(world), "snippet,contentDetails,statistics"
    for handle in ("@theartist", "TheArtist"):
        (item,) = call(visitor, "channels", part=parts, forHandle=handle).json()["items"]
        assert item["id"] == artist
    assert item["contentDetails"]["relatedPlaylists"]["uploads"] == "UU" + artist[2:]
    assert item["snippet"]["customUrl"] == "@TheArtist"
    both = call(visitor, "channels", part="id", id=f"{artist},{owner},UCnone").json()
    assert [item["id"] for item in both["items"]] == [artist, owner]


def test_no_match_is_empty_items_by_id_and_no_items_by_handle(world: World) -> None:
    visitor = Visitor(world)
    assert call(visitor, "channels", part="id", id="UCnone").json()["items"] == []
    assert "items" not in call(visitor, "channels", part="id", forHandle="@none").json()


def test_playlists_list_costs_one_unit_and_returns_item_counts(world: World, ref: str, owner: str, artist: str) -> None:
    fill(world, ref, artist, 3)
    visitor = Visitor(world)
    (item,) = call(visitor, "playlists", part="contentDetails", id=f"{ref},PLnone").json()["items"]
    assert item["contentDetails"] == {"itemCount": 3}
    assert call(visitor, "playlists", channelId=owner).json()["items"][0]["id"] == ref
    assert visitor.site.quota.used(T0) == 2


def test_an_etag_saves_bytes_but_no_quota(world: World, ref: str, artist: str) -> None:
    fill(world, ref, artist, 2)
    visitor = Visitor(world)
    tag = call(visitor, "playlistItems", playlistId=ref).json()["etag"]
    key = {"X-Goog-Api-Key": "demo-key", "If-None-Match": tag}
    same = visitor.get(f"{API}/playlistItems", key, part=PARTS, playlistId=ref)
    assert (same.status_code, same.content) == (304, b"")
    assert visitor.site.quota.used(T0) == 2
    fill(world, ref, artist, 1)
    assert visitor.get(f"{API}/playlistItems", key, part=PARTS, playlistId=ref).status_code == 200


def test_a_lone_surrogate_is_sent_as_an_escape(world: World, ref: str, artist: str) -> None:
    world.add_to_playlist(ref, world.upload(artist, "a\ud800\x00b", at=T0).id, at=T0)
    answer = call(Visitor(world), "playlistItems", playlistId=ref)
    assert rb"a\ud800\u0000b" in answer.content
    assert answer.json()["items"][0]["snippet"]["title"] == "a\ud800\x00b"


# Keys, quota, errors


def test_the_key_is_taken_from_header_or_url(world: World, ref: str) -> None:
    visitor = Visitor(world)
    params = {"part": "id", "playlistId": ref}
    assert visitor.get(f"{API}/playlistItems", {"X-Goog-Api-Key": "demo-key"}, **params).status_code == 200
    assert visitor.site.requests.keys_in_url == 0
    assert visitor.get(f"{API}/playlistItems", key="demo-key", **params).status_code == 200
    assert visitor.site.requests.keys_in_url == 1
    missing = visitor.get(f"{API}/playlistItems", **params)
    assert (missing.status_code, missing.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
    wrong = visitor.get(f"{API}/playlistItems", key="no", **params)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["errors"][0]["reason"] == "badRequest"
    assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"


def test_the_quota_counts_every_call_and_resets_at_pacific_midnight(world: World, ref: str) -> None:
    visitor = Visitor(world, quota=3)
    visitor.clock.at = datetime(2026, 9, 22, 6, 59, 50, tzinfo=UTC).timestamp()
    statuses = [call(visitor, "playlistItems", playlistId=name).status_code for name in (ref, "PLno", ref, ref)]
    assert statuses == [200, 404, 200, 403]
    refused = call(visitor, "playlistItems", playlistId=ref).json()["error"]
    assert (refused["errors"][0]["domain"], refused["errors"][0]["reason"]) == (
        "youtube.quota",
        "quotaExceeded",
    )
    visitor.clock.at += 15
    assert call(visitor, "playlistItems", playlistId=ref).status_code == 200
    assert visitor.site.quota.used(visitor.clock.at) == 1


@pytest.mark.parametrize(("month", "hour"), [(1, 8), (7, 7)])
def test_the_quota_day_follows_daylight_saving(month: int, hour: int) -> None:
    quota = Quota(10)
    midnight = datetime(2026, month, 15, hour, tzinfo=UTC).timestamp()
    quota.charge(midnight - 1)
    assert quota.used(midnight - 1) == 1
    assert quota.used(midnight) == 0


@pytest.mark.parametrize(
    ("endpoint", "params", "status", "reason"),
    [
        ("playlistItems", {"playlistId": "PLnone"}, 404, "playlistNotFound"),
        ("playlistItems", {"playlistId": "WL"}, 403, "watchLaterNotAccessible"),
        ("playlistItems", {}, 400, "missingRequiredParameter"),
        ("playlistItems", {"playlistId": "PL", "part": ""}, 400, "required"),
        ("playlistItems", {"playlistId": "PL", "part": "id,soul"}, 400, "unknownPart"),
        ("playlistItems", {"playlistId": "PL", "maxResults": "51"}, 400, "badRequest"),
        ("playlistItems", {"playlistId": "PL", "maxResults": "-1"}, 400, "badRequest"),
        ("playlistItems", {"playlistId": "PL", "maxResults": "many"}, 400, "badRequest"),
        ("playlistItems", {"playlistId": "PL", "pageToken": "garbage"}, 400, "invalidPageToken"),
        ("playlistItems", {"playlistId": "PL", "pageToken": "ü"}, 400, "invalidPageToken"),
        ("playlistItems", {"playlistId": "PL", "pageToken": page_token(5)[:-1]}, 400, "invalidPageToken"),
        ("videos", {}, 400, "missingRequiredParameter"),
        ("videos", {"id": ",".join("v" * 51)}, 400, "badRequest"),
    ],
)
def test_bad_requests(world: World, endpoint: str, params: dict[str, str], status: int, reason: str) -> None:
    check_envelope(call(Visitor(world), endpoint, **params), status, reason)


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_has_the_envelope(world: World, ref: str, reason: str) -> None:
    answer = call(Visitor(world, faults=f"api:{reason}"), "playlistItems", playlistId=ref)
    check_envelope(answer, REASONS[reason].code, REASONS[reason].wire or reason)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 502, 503, 504])
def test_a_bare_status_has_the_envelope(world: World, ref: str, status: int) -> None:
    answer = call(Visitor(world, faults=f"api:{status}=9"), "playlistItems", playlistId=ref)
    check_envelope(answer, status, answer.json()["error"]["errors"][0]["reason"])
    assert answer.headers["retry-after"] == "9"


def check_envelope(answer: httpx.Response, status: int, reason: str) -> None:
    error = answer.json()["error"]
    assert answer.status_code == error["code"] == status
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert {"code", "message", "errors"} <= set(error) <= {"code", "message", "errors", "status", "details"}
    (first,) = error["errors"]
    assert {"message", "domain", "reason"} <= set(first)
    assert first["reason"] == reason
    assert b"<" not in answer.content


def test_only_the_second_page_fails(world: World, ref: str, artist: str) -> None:
    fill(world, ref, artist, 60)
    visitor = Visitor(world, faults="playlistItems:500+1*1")
    token = call(visitor, "playlistItems", playlistId=ref, maxResults="50").json()["nextPageToken"]
    second = {"playlistId": ref, "maxResults": "50", "pageToken": token}
    assert call(visitor, "playlistItems", **second).status_code == 500
    assert call(visitor, "playlistItems", **second).status_code == 200


# Ledger and control


def test_a_playlist_item_is_in_the_ledger_once_it_is_readable(
    world: World, ref: str, artist: str, tmp_path: Path
) -> None:
    path = tmp_path / "served.jsonl"
    first, second = fill(world, ref, artist, 2)
    world.set_privacy(second, "private", at=T0)
    visitor = Visitor(world, ledger_path=path)
    call(visitor, "playlistItems", playlistId=ref)
    call(visitor, "playlistItems", playlistId="UU" + artist[2:])
    world.set_privacy(second, "public", at=T0)
    call(visitor, "playlistItems", playlistId=ref)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["kind"], row["key"]) for row in rows] == [
        ("playlist", f"youtube:video:{first}:{ref}"),
        ("uploads", f"youtube:video:{first}"),
        ("playlist", f"youtube:video:{second}:{ref}"),
    ]
    assert rows[2]["occurred_at"] == "2026-09-21T14:13:21Z"


def post(visitor: Visitor, path: str, body: Any, client: str = "127.0.0.1", **kwargs: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=visitor.app, client=(client, 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://sim") as http:
            return await http.post(f"/sim{path}", **({"json": body} | kwargs))

    return asyncio.run(send())


def test_the_control_api_creates_and_changes_content(world: World) -> None:
    visitor = Visitor(world)
    channels = post(visitor, "/channels", {"title": "C", "count": 2}).json()["channel_ids"]
    ref = post(visitor, "/playlists", {"owner": channels[0]}).json()["playlist_id"]
    videos = post(visitor, "/upload", {"channel": channels[1], "count": 3, "kind": "short"}).json()["video_ids"]
    added = post(visitor, "/playlist/add", {"playlist": ref, "video": videos[0]}).json()
    fresh = post(visitor, "/playlist/add", {"playlist": ref, "title": "own", "at_top": True}).json()["video_id"]
    listing = world.listing(ref)
    assert listing is not None
    assert [(e.video.id, e.video.channel_id) for e in listing.entries] == [
        (fresh, channels[0]),
        (videos[0], channels[1]),
    ]
    assert listing.entries[1].item_id == added["item_id"]
    post(visitor, "/edit", {"video": videos[1], "title": "edited"})
    post(visitor, "/privacy", {"video": videos[0], "privacy": "private"})
    post(visitor, "/delete", {"video": videos[2]})
    post(visitor, "/playlist/remove", {"playlist": ref, "video": fresh})
    assert [v.title for v in world.newest(channels[1])] == ["edited"]
    assert world.size(ref) == 1
    assert post(visitor, "/delete", {"channel": channels[0]}).json() == {"deleted": channels[0]}


def test_the_control_api_reports_counters_and_sets_faults(world: World, ref: str) -> None:
    visitor = Visitor(world, quota=5)
    visitor.clock.at += 100
    assert post(visitor, "/faults", {"script": "feed:404@0-10", "from_now": True}).json()["rules"]
    visitor.feed("UCnone")
    call(visitor, "playlistItems", playlistId=ref)
    state = visitor.get("/sim/state").json()
    assert state["requests"] == {"/feeds/videos.xml": {"404": 1}, f"{API}/playlistItems": {"200": 1}}
    assert state["quota"] == {"limit": 5, "used_today": 1}
    assert state["playlists"] == {ref: 0}
    rows = visitor.get("/sim/requests").json()["requests"]
    assert [(row["ref"], row["status"], row["fault"]) for row in rows] == [
        ("UCnone", 404, "status"),
        (ref, 200, ""),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/upload", {"channel": "UCnone"}, 400, "no channel 'UCnone'"),
        ("/upload", {"chanel": "UCnone"}, 422, "chanel"),
        ("/upload", {"channel": "UC", "kind": "film"}, 422, "kind"),
        ("/playlist/add", {"playlist": "PLnone"}, 400, "no playlist"),
        ("/delete", {}, 400, "either a video or a channel"),
        ("/faults", {"script": "feed:boom"}, 400, "no action 'boom'"),
    ],
)
def test_the_control_api_reports_errors(world: World, path: str, body: Any, status: int, message: str) -> None:
    answer = post(Visitor(world), path, body)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_the_control_api_accepts_only_json_from_loopback(world: World) -> None:
    visitor = Visitor(world)
    assert post(visitor, "/channels", {}, client="192.0.2.7").status_code == 403
    form = post(visitor, "/channels", {}, json=None, content=b"{}", headers={"content-type": "text/plain"})
    assert form.status_code == 415
    assert world.channels() == ()
