"""The adapters against the simulated YouTube over real HTTP: private lists by OAuth, gaps, uploads, sizes."""

import pytest

from csi.adapters.base import Position, Tools
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import SourceError
from csi.net import Net
from csi.simulator.youtube.oauth_tokens import OAuthClient
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube

KEY = {"YOUTUBE_API_KEY": "demo-key"}
OWNER = {
    "YOUTUBE_OAUTH_CLIENT_ID": OAuthClient().client_id,
    "YOUTUBE_OAUTH_CLIENT_SECRET": OAuthClient().client_secret,
    "YOUTUBE_OAUTH_REFRESH_TOKEN": OAuthClient().refresh_token,
}


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=1, playlists=1, now=clock) as site:
        yield site


@pytest.fixture
def net():
    with Net() as open_net:
        yield open_net


def playlists(yt: SimulatedYouTube, net: Net, secrets: dict[str, str], clock) -> YouTubePlaylistAdapter:
    config = {"api_base_url": yt.api_base_url + "/", "oauth": {"token_url": yt.token_url}}
    return YouTubePlaylistAdapter(config, Tools(net=net, secret=secrets.get, now=clock))


def channels(yt: SimulatedYouTube, net: Net, clock) -> YouTubeChannelRSSAdapter:
    config = {"api_base_url": yt.api_base_url, "feed_url_template": yt.feed_url_template}
    return YouTubeChannelRSSAdapter(config, Tools(net=net, secret=KEY.get, now=clock))


def private_list(yt: SimulatedYouTube, clock) -> str:
    ref = yt.world.add_playlist("Mine", owner=yt.library, at=clock(), privacy="private").id
    for number in range(60):
        yt.add(ref, f"Private {number}")
    return ref


def test_a_private_list_is_missing_to_a_key_and_read_with_its_owners_token(yt, net, clock):
    ref = private_list(yt, clock)
    with pytest.raises(SourceError) as caught:
        playlists(yt, net, KEY, clock).read(Position(ref))
    assert caught.value.kind == "missing"
    assert len(playlists(yt, net, OWNER, clock).read(Position(ref)).items) == 60
    assert yt.site.tokens.issued == 1


def test_a_token_that_was_revoked_or_has_ended_is_renewed_without_an_error(yt, net, clock):
    ref, adapter = private_list(yt, clock), playlists(yt, net, OWNER, clock)
    adapter.read(Position(ref, emits=0))
    yt.site.tokens.revoke_all()
    assert len(adapter.read(Position(ref, emits=0)).items) == 60
    clock.move(3600)
    assert len(adapter.read(Position(ref, emits=0)).items) == 60
    assert yt.site.tokens.issued == 3


@pytest.mark.parametrize(("name", "words"), [("REFRESH_TOKEN", "no longer valid"), ("CLIENT_SECRET", "not accepted")])
def test_a_wrong_secret_is_said_by_the_name_of_its_variable(yt, net, clock, name, words):
    wrong = {**OWNER, f"YOUTUBE_OAUTH_{name}": "another-one"}
    with pytest.raises(SourceError, match=words) as caught:
        playlists(yt, net, wrong, clock).read(Position(private_list(yt, clock)))
    assert caught.value.kind == "auth"
    assert "another-one" not in str(caught.value)


def test_every_reason_of_the_simulated_api_reaches_us_in_words(yt, net, clock):
    adapter = playlists(yt, net, {"YOUTUBE_API_KEY": "wrong-key"}, clock)
    with pytest.raises(SourceError, match="not valid; check YOUTUBE_API_KEY"):
        adapter.read(Position(yt.playlists[0]))
    for ref in ("WL", "HL"):
        with pytest.raises(SourceError, match="does not offer this list"):
            playlists(yt, net, KEY, clock).read(Position(ref))


def test_lengths_and_live_states_are_those_of_the_world(yt, net, clock):
    for kind in ("video", "short", "live", "upcoming"):
        yt.add(yt.playlists[0], kind, kind=kind)
    adapter = playlists(yt, net, KEY, clock)
    events = [adapter.normalize(raw).subject for raw in adapter.read(Position(yt.playlists[0])).items]
    assert {event["title"]: event["kind"] for event in events} == {
        "video": "video",
        "short": "video",  # a playlist does not tell
        "live": "live",
        "upcoming": "upcoming",
    }
    assert {event["title"] for event in events if "duration_seconds" in event} == {"video", "short"}


def test_feed_and_uploads_list_agree_on_every_upload(yt, net, clock):
    ref, adapter = yt.channels[0], channels(yt, net, clock)
    for number in range(15):
        yt.upload(ref, f"Number {number}", kind="short" if number % 3 == 0 else "video")
        clock.move(60)
    by_feed = [adapter.normalize(raw) for raw in adapter.read(Position(ref)).items]
    by_api = [adapter.normalize(raw) for raw in adapter.read(Position(ref, via="api")).items]
    facts = [[(e.event_id, e.dedupe_key, e.occurred_at, e.subject["kind"]) for e in side] for side in (by_feed, by_api)]
    assert facts[0] == facts[1]
    assert yt.site.quota.used(clock()) == 2


def test_a_gap_is_filled_from_the_uploads_list(yt, net, clock):
    ref, adapter = yt.channels[0], channels(yt, net, clock)
    seen = {f"youtube:video:{yt.upload(ref, f'Seen {n}')}" for n in range(15)}
    clock.move(3600)
    since = clock()
    clock.move(3600)
    missed = [yt.upload(ref, f"Missed {n}") for n in range(70)]
    reading = adapter.fill_gap(Position(ref, known=lambda keys: seen & set(keys), last_success_at=since), since)
    assert {adapter.item_key(raw) for raw in reading.items} == {f"youtube:video:{video}" for video in missed}


def test_what_is_gone_is_confirmed_and_what_is_there_too(yt, net, clock):
    adapter, ref = channels(yt, net, clock), yt.channels[0]
    assert adapter.confirm(ref) == "exists"
    assert adapter.read(Position(ref, via="api")).items == ()
    yt.world.delete_channel(ref)
    assert adapter.confirm(ref) == "missing"
    assert playlists(yt, net, KEY, clock).confirm(yt.playlists[0]) == "exists"


def test_the_count_of_items_shows_an_addition(yt, net, clock):
    adapter, ref = playlists(yt, net, KEY, clock), yt.playlists[0]
    before = adapter.count_items(ref, "api")
    yt.add(ref)
    assert adapter.count_items(ref, "api") == before + 1
    assert yt.site.quota.used(clock()) == 2


def test_no_secret_is_in_any_address(yt, net, clock):
    playlists(yt, net, KEY, clock).read(Position(yt.playlists[0]))
    assert yt.requests.keys_in_url == 0
