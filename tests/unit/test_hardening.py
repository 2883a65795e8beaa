"""Small findings of a security review: input that must not be believed, and what must not be handed on."""

import random
import time
from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers

from csi import notifications
from csi.adapters import feed_discovery
from csi.adapters.youtube import feed_guard, video_fields
from csi.adapters.youtube.api import ApiPage
from csi.adapters.youtube.api_errors import api_json
from csi.adapters.youtube_playlist import ENDLESS_REST, _most_pages, _of_watch
from csi.errors import SourceError
from csi.net.address_guard import without_metadata
from csi.net.response import HttpHeaders, HttpResponse
from csi.processing.providers.assemblyai import command_environment
from csi.receiver.request import RequestError, check_length
from csi.scheduling.host_pacing import hold_seconds
from csi.scheduling.watch_health import HostFacts, WatchFacts, do_agree, judge, pause
from csi.token_guess_limit import GUESSES, LOCK_SECONDS, GuessBrake
from csi.web.auth import host_of
from csi.web.operation_definition import _json_object
from csi.web.responses import HttpProblem

QUOTA = b'{"error": {"code": 403, "errors": [{"reason": "quotaExceeded", "domain": "youtube.quota"}]}}'


@pytest.mark.parametrize(("status", "kind"), [(403, "quota"), (429, "quota"), (200, "transient"), (500, "transient")])
def test_a_used_up_quota_is_believed_with_its_own_status(status, kind):
    answer = HttpResponse(status=status, headers=HttpHeaders([]), body=QUOTA, url="http://x", elapsed=0.1)
    with pytest.raises(SourceError) as refused:
        api_json(answer)
    assert refused.value.kind == kind


def test_the_pages_of_a_list_are_capped_by_its_length():
    assert _most_pages(ApiPage((), total=15)) == 4
    assert _most_pages(ApiPage((), total=5_000)) == 200
    assert _most_pages(ApiPage(())) == 200


def test_an_endless_list_rests_for_a_day():
    failure = SourceError("the playlist has no end", kind="malformed", retry_after=ENDLESS_REST)
    verdict = judge(WatchFacts("healthy", None, 0, 30.0, costs=True), HostFacts(), failure, 0.0, random.Random(1))
    assert 0.9 * 86_400 <= verdict.next_at <= 86_400


@pytest.mark.parametrize(("watches", "throttled", "agree"), [(1, 1, True), (5, 1, False), (5, 2, True), (99, 2, False)])
def test_several_watches_agree_before_their_host_rests(watches, throttled, agree):
    assert do_agree(watches, throttled) == agree
    assert pause(0, 3600.0, random.Random(1), agree=agree) == (3600.0 if agree else 60.0)


def test_the_pace_of_a_host_is_held_for_a_minute_by_one_answer():
    headers = {"retry-after": "3600"}
    assert hold_seconds(headers, 0.0, 0.0, refused=True) == 60.0
    assert hold_seconds(headers, 61.0, 0.0, refused=True) == 3600.0


def test_the_watched_playlist_counts():
    item = {"id": "1", "snippet": {"playlistId": "PLevil", "title": "t"}}
    assert _of_watch(item, "PLours") == {"id": "1", "snippet": {"playlistId": "PLours", "title": "t"}}


def test_audio_command_gets_no_secret(monkeypatch):
    monkeypatch.setenv("CSI_UA_SHARED_SECRET", "canary")
    monkeypatch.setenv("ASSEMBLYAI_API_KEY", "canary")
    found = command_environment()
    assert "canary" not in found.values()
    assert "PATH" in found


def test_white_space_before_a_feed_is_accepted():
    feed = b'\n \r\n<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"></feed>'
    assert feed_guard.checked(feed).startswith(b"<feed")


def test_the_links_of_hostile_headers_are_found_in_little_time():
    answer = HttpResponse(200, HttpHeaders([("link", "<a>;" * 5_000)] * 5), b"", "https://a.example")
    began = time.process_time()
    assert list(feed_discovery._candidates(answer, "https://a.example/"))
    assert time.process_time() - began < 3, "far above what it takes; a search to the end of the line takes twice that"


@pytest.mark.parametrize("word", ["null", "None", "undefined"])
def test_a_word_for_no_value_is_no_id(word):
    assert video_fields.valid_id(word) is None


@pytest.mark.parametrize(("host", "name"), [("localhost:99999", None), ("localhost:65535", "localhost")])
def test_a_host_with_an_impossible_port_is_refused(host, name):
    assert host_of(Headers({"host": host})) == name


def test_two_lengths_of_one_body_are_refused():
    with pytest.raises(RequestError):
        check_length(Headers({"content-length": "5", "transfer-encoding": "chunked"}), 100)


def test_json_of_the_admin_api_is_utf_8():
    with pytest.raises(HttpProblem):
        _json_object('{"a": 1}'.encode("utf-16"), "application/json; charset=utf-16")


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254", "0.0.0.0", "100.100.100.200"]
)
def test_a_name_that_points_to_metadata_reaches_nothing(address):
    assert without_metadata("receiver.example", [address, "10.0.0.5"]) == ["10.0.0.5"]
    assert without_metadata(address, [address]) == [address]


def test_an_address_that_guesses_tokens_waits():
    now = [100.0]
    brake = GuessBrake(lambda: now[0])
    for _ in range(GUESSES - 1):
        brake.note_wrong("10.0.0.9")
    assert brake.wait_seconds("10.0.0.9") == 0
    brake.note_wrong("10.0.0.9")
    assert brake.wait_seconds("10.0.0.9") == LOCK_SECONDS
    assert brake.wait_seconds("10.0.0.1") == 0
    now[0] += LOCK_SECONDS
    assert brake.wait_seconds("10.0.0.9") == 0


def test_the_addresses_of_one_ipv6_network_wait_together():
    brake = GuessBrake(lambda: 100.0)
    for number in range(GUESSES):
        brake.note_wrong(f"2001:db8:0:1::{number:x}")
    assert brake.wait_seconds("2001:db8:0:1:ffff::1") == LOCK_SECONDS
    assert brake.wait_seconds("2001:db8:0:2::1") == 0


def test_alerts_mention_nobody(monkeypatch):
    sent = []

    class Apprise(list):
        def add(self, url):
            """No service: the message itself is what counts."""

        def notify(self, **message):
            sent.append((message["title"], message["body"]))
            return True

    library = SimpleNamespace(Apprise=Apprise, OverflowMode=SimpleNamespace(UPSTREAM=None))
    monkeypatch.setattr(notifications, "_library", lambda: library)
    notifications.send(["json://x"], "late: @everyone", "<@&1> and <!channel>, mail a@here.example")
    assert sent == [("late: @\u200beveryone", "<\u200b@&1> and <\u200b!channel>, mail a@\u200bhere.example")]
