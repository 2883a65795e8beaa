"""Channels, videos and playlists of the simulated YouTube."""

import base64
import threading

import pytest

from csi.simulator.youtube.content import Traffic, populate
from csi.simulator.youtube.world import UnknownIdError, World, channel_of

T0 = 1_790_000_000.0


@pytest.fixture
def world() -> World:
    return World(seed=7)


@pytest.fixture
def channel(world: World) -> str:
    return world.add_channel("Lighthouses", at=T0).id


def uploads(channel_id: str) -> str:
    return "UU" + channel_id[2:]


def test_ids_have_the_real_lengths_and_come_from_the_seed(channel: str) -> None:
    world = World(seed=7)
    same = world.add_channel("Other", at=T0 + 5).id
    assert same == channel
    assert channel.startswith("UC")
    assert len(channel) == 24
    assert len(world.upload(same, "x", at=T0).id) == 11
    assert len(world.add_playlist("x", owner=same, at=T0).id) == 34
    assert World(seed=8).add_channel("Lighthouses", at=T0).id != channel


def test_newest_first_and_the_later_of_two_uploads_with_the_same_time_is_newer(world: World, channel: str) -> None:
    first = world.upload(channel, "first", at=T0).id
    second = world.upload(channel, "second", at=T0).id
    old = world.upload(channel, "old", at=T0 - 100).id
    assert [v.id for v in world.newest(channel)] == [second, first, old]
    assert [v.id for v in world.newest(channel, 1)] == [second]


def test_the_publication_time_is_set_when_a_video_first_becomes_public(world: World, channel: str) -> None:
    video = world.upload(channel, "kept back", at=T0, privacy="private").id
    world.upload(channel, "between", at=T0 + 10)
    assert len(world.newest(channel)) == 1
    assert world.set_privacy(video, "public", at=T0 + 20).published_at == T0 + 20
    assert world.newest(channel)[0].id == video
    world.set_privacy(video, "private", at=T0 + 30)
    assert world.set_privacy(video, "public", at=T0 + 40).published_at == T0 + 20


def test_a_new_item_is_last_unless_added_at_the_top(world: World, channel: str) -> None:
    ref = world.add_playlist("List", owner=channel, at=T0).id
    a, b, c = (world.upload(channel, name, at=T0).id for name in "abc")
    world.add_to_playlist(ref, a, at=T0 + 1)
    world.add_to_playlist(ref, b, at=T0 + 2)
    world.add_to_playlist(ref, c, at=T0 + 3, at_top=True)
    listing = world.listing(ref)
    assert listing is not None
    assert [(e.position, e.video.id) for e in listing.entries] == [(0, c), (1, a), (2, b)]


def test_item_ids_are_base64_of_the_list_id_and_a_suffix(world: World, channel: str) -> None:
    ref = world.add_playlist("List", owner=channel, at=T0).id
    video = world.upload(channel, "v", at=T0).id
    twice = [world.add_to_playlist(ref, video, at=T0).id for _ in range(2)]
    assert twice[0] != twice[1]
    head, _, tail = base64.b64decode(twice[0]).decode().partition(".")
    assert head == ref
    assert len(tail) == 16
    listing = world.listing(uploads(channel))
    assert listing is not None
    assert base64.b64decode(listing.entries[0].item_id).decode() == f"{uploads(channel)}.{video}"


def test_a_removed_item_disappears_and_a_deleted_video_stays_as_deleted(world: World, channel: str) -> None:
    ref = world.add_playlist("List", owner=channel, at=T0).id
    gone, removed = (world.upload(channel, name, at=T0).id for name in ("gone", "removed"))
    for video in (gone, removed):
        world.add_to_playlist(ref, video, at=T0)
    world.delete(gone, at=T0 + 1)
    world.remove_from_playlist(ref, removed)
    listing = world.listing(ref)
    assert listing is not None
    assert [(e.video.id, e.video.privacy) for e in listing.entries] == [(gone, "deleted")]
    with pytest.raises(UnknownIdError, match="not in playlist"):
        world.remove_from_playlist(ref, removed)


def test_private_playlists_and_empty_uploads_lists_are_not_found(world: World, channel: str) -> None:
    secret = world.add_playlist("Secret", owner=channel, at=T0, privacy="private").id
    assert world.listing(secret) is None
    assert world.listing(uploads(channel)) is None
    assert world.listing("PLnothing") is None


def test_the_lists_beside_the_uploads_list_have_one_kind_of_video(world: World, channel: str) -> None:
    world.upload(channel, "long", at=T0)
    short = world.upload(channel, "short", at=T0, kind="short").id
    ref = "UUSH" + channel[2:]
    listing = world.listing(ref)
    assert listing is not None
    assert [e.video.id for e in listing.entries] == [short]
    assert channel_of(ref) == channel_of(uploads(channel)) == channel
    assert channel_of("PL" + "x" * 32) is None


def test_a_version_changes_only_with_its_own_content(world: World, channel: str) -> None:
    other = world.add_channel("Other", at=T0).id
    ref = world.add_playlist("List", owner=other, at=T0).id
    video = world.upload(channel, "v", at=T0).id
    world.add_to_playlist(ref, video, at=T0)
    before = [world.version(name) for name in (channel, uploads(channel), ref, other)]
    world.edit(video, at=T0 + 1, title="new name")
    after = [world.version(name) for name in (channel, uploads(channel), ref, other)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1, 0]


def test_a_stream_goes_from_upcoming_to_live_to_a_video(world: World, channel: str) -> None:
    video = world.upload(channel, "stream", at=T0, kind="upcoming").id
    assert world.start_live(video, at=T0 + 60).kind == "live"
    ended = world.end_live(video, at=T0 + 660)
    assert (ended.kind, ended.duration, ended.published_at) == ("video", 600, T0)


def test_deleting_a_channel_deletes_its_videos(world: World, channel: str) -> None:
    owner = world.add_channel("Owner", at=T0).id
    ref = world.add_playlist("List", owner=owner, at=T0).id
    video = world.upload(channel, "v", at=T0).id
    world.add_to_playlist(ref, video, at=T0)
    world.delete_channel(channel)
    assert world.channel(channel) is None
    listing = world.listing(ref)
    assert listing is not None
    assert listing.entries[0].video.privacy == "deleted"


def test_an_unknown_id_is_an_error_with_a_remedy(world: World) -> None:
    with pytest.raises(UnknownIdError, match="no channel 'UCnone'"):
        world.upload("UCnone", "x", at=T0)
    with pytest.raises(UnknownIdError, match="no video 'none'"):
        world.edit("none", at=T0, title="x")


def test_threads_can_upload_concurrently(world: World, channel: str) -> None:
    def work() -> None:
        for number in range(200):
            world.upload(channel, str(number), at=T0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({v.id for v in world.newest(channel)}) == 800


def test_traffic_creates_every_kind_of_item_and_repeats_with_its_seed() -> None:
    def live(seed: int) -> tuple[World, list[str]]:
        world = World(seed)
        content = populate(world, channels=3, playlists=2, videos=2, at=T0)
        traffic = Traffic(world, content, seed)
        for number in range(600):
            traffic.step(T0 + number / 10)
            traffic.publish_due(T0 + number / 10)
        titles = [v.title for c in world.channels() for v in world.newest(c.id)]
        return world, titles

    world, titles = live(3)
    assert titles == live(3)[1]
    shown = [v for c in world.channels() for v in world.newest(c.id)]
    assert {v.kind for v in shown} == {"video", "short", "live", "upcoming"}
    assert any("</script>" in title for title in titles)
    assert any("(edited)" in title for title in titles)
    lists = [world.listing(p.id) for p in world.playlists()]
    privacies = {e.video.privacy for listing in lists if listing for e in listing.entries}
    assert privacies == {"public", "private", "deleted"}
    stamps = [v.published_at for v in shown]
    assert len(set(stamps)) < len(stamps)


def test_traffic_continues_after_its_channel_was_deleted() -> None:
    world = World()
    content = populate(world, channels=1, playlists=0, videos=0, at=T0)
    world.delete_channel(content.channels[0])
    traffic = Traffic(world, content)
    traffic.step(T0)
    assert (traffic.made, world.video_count()) == (1, 0)
