"""Fault cases 96–104: one bad feed, playlist, subreddit, hub or address, and what the others still deliver."""

import codecs
import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import pytest

from csi.store import db
from csi.store.models import Event, Watch
from tests.fakes.raw_server import Canary, RawRequest, RawServer, Send, answer
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline, PollingPipeline, polling_pipeline
from tests.rigs.push import push_rig
from tests.rigs.simulated_reddit import HOUR, expected, keys, reddit

INTERVAL = 60
QUOTA = b'{"error": {"code": 403, "errors": [{"reason": "quotaExceeded", "domain": "youtube.quota"}]}}'
NO_GAPS = {"api_key_env": "NO_SUCH_KEY"}


def publish_everywhere(yt: PollingPipeline, rounds: int, seconds: float) -> set[str]:
    """So many videos in every channel, in rounds; returns the keys of what was served."""
    served = set()
    for _ in range(rounds):
        served |= {f"youtube:video:{yt.upload(ref)}" for ref in yt.channels}
        yt.go(seconds)
    return served


def longest_wait(yt: PollingPipeline, refs: list[str], since: float) -> float:
    """Between two reads of one of these watches."""
    times = [[at for at in yt.net.times(ref) if at >= since] for ref in refs]
    return max(after - before for found in times for before, after in pairwise(found))


def account(case, served: set[str], **more: object) -> None:
    found = keys()
    emitted = Event.select().count()
    case.note(served=len(served), lost=len(served - found), extra=emitted - len(served & found), **more)
    assert served <= found
    assert emitted == len(served)


def test_case_96_one_watch_always_throttled(tmp_path, clock, case):
    """It backs off by itself; the others of its host keep their interval, and its items are read when it answers."""
    with polling_pipeline(tmp_path, clock, channels=4, feeds={"poll_interval_seconds": 15, **NO_GAPS}) as yt:
        bad, others = yt.channels[3], [ref for place, ref in enumerate(yt.channels) if place != 3]
        yt.go(30)
        yt.site.set_faults(f"feed/{bad}:429=5")
        yt.go(60)
        began = clock()
        served = publish_everywhere(yt, 5, 240)
        tries = [at for at in yt.net.times(bad) if at >= began]
        waited, state = longest_wait(yt, others, began), Watch.get(ref=bad).health
        yt.site.set_faults("")
        while Watch.get(ref=bad).errors and clock() - began < 2 * HOUR:
            yt.go(60)
        account(case, served, tries_of_the_bad=f"{len(tries)}<=10", longest_wait_of_others=f"{waited:.0f}s<=30s")
        assert len(tries) <= 10
        assert max(b - a for a, b in pairwise(tries)) > 200
        assert waited <= 30
        assert (state, Watch.get(ref=bad).health) == ("throttled", "healthy")


def test_case_97_far_retry_after_quota_with_200_and_an_endless_playlist(tmp_path, clock, case):
    """None of the three stops any other watch."""
    feeds = {"poll_interval_seconds": INTERVAL}
    lists = {"poll_interval_seconds": INTERVAL, "adaptive_polling": {"enabled": False}}
    with polling_pipeline(tmp_path, clock, channels=6, playlists=4, videos=3, feeds=feeds, lists=lists) as yt:
        yt.go(200)
        bad, (quota, endless, *good) = yt.channels[0], yt.playlists
        yt.site.set_faults(f"feed/{bad}:429=86400")
        real, began = yt.net.get, clock()

        def get(url, **options):
            reply = real(url.replace("&pageToken=again", ""), **options)
            if "/playlistItems" in url and quota in url:
                return replace(reply, status=200, body=QUOTA)
            if "/playlistItems" in url and endless in url:
                body = json.dumps(json.loads(reply.body) | {"nextPageToken": "again"}).encode()
                return replace(reply, status=200, body=body)
            return reply

        yt.net.get = get
        listed = [(ref, yt.world.upload(yt.channels[1], "Listed", at=began).id) for ref in good]
        for ref, video in listed:
            yt.world.add_to_playlist(ref, video, at=began)
        served = publish_everywhere(yt, 4, 450)
        served |= {f"youtube:video:{video}" for _, video in listed}
        served |= {f"youtube:video:{video}:{ref}" for ref, video in listed}
        in_error = {row.ref for row in Watch.select() if row.errors}
        waited = max(longest_wait(yt, yt.channels[1:], began), longest_wait(yt, good, began))
        calls = len([at for at in yt.net.times(endless) if at >= began])
        yt.net.get = real
        yt.site.set_faults("")
        yt.go(2 * HOUR)
        account(case, served, longest_wait_of_others=f"{waited:.0f}s<=130s", calls_for_the_endless_list=f"{calls}<=20")
        assert in_error == {bad, quota, endless}
        assert waited <= 2 * INTERVAL + 10
        assert calls <= 20


@pytest.mark.parametrize("fault", ["noentries", "stale", "html"])
def test_case_98_a_feed_that_becomes_useless(tmp_path, clock, case, fault):
    with polling_pipeline(tmp_path, clock, channels=6, videos=3, feeds={"poll_interval_seconds": INTERVAL}) as yt:
        yt.go(200)
        bad = yt.channels[2]
        yt.site.set_faults(f"feed/{bad}:{fault}")
        yt.go(INTERVAL)
        began = clock()
        served = publish_everywhere(yt, 3, 300)
        errors = [row.ref for row in Watch.select() if row.errors]
        waited = longest_wait(yt, [ref for ref in yt.channels if ref != bad], began)
        yt.site.set_faults("")
        yt.go(900)
        account(case, served, in_error=len(errors), longest_wait_of_others=f"{waited:.0f}s<=90s")
        assert errors == ([] if fault == "stale" else [bad]), "a stale feed looks as if nothing was published"
        assert waited <= 1.5 * INTERVAL
        assert {row.health for row in Watch.select()} == {"healthy"}


RSS = "<rss version='2.0'><channel><title>B</title>{}</channel></rss>"
ITEM = "<item><guid>{0}</guid><title>Übung {0}</title></item>"
ENCODED = {
    "newline": lambda text: b"\n \r\n" + text.encode(),
    "bom": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-32": lambda text: text.encode("utf-32"),
    "latin-1": lambda text: b"<?xml version='1.0' encoding='iso-8859-1'?>" + text.encode("latin-1"),
    "not-utf-8": lambda text: b"<?xml version='1.0' encoding='utf-8'?>" + text.encode("cp1252"),
    "no-such": lambda text: b"<?xml version='1.0' encoding='no-such'?>" + text.encode(),
}


def feed_pipeline(tmp_path, clock, ua: ScriptedReceiver, urls: list[str], allowed: list[str]) -> InProcessPipeline:
    block = {"first_poll": "all", "poll_interval_seconds": 300, "feeds": [{"url": url} for url in urls]}
    return InProcessPipeline(tmp_path, clock, ua.url, sources={"feed": block}, net={"allowed_private_hosts": allowed})


def delivered(ua: ScriptedReceiver) -> list[dict]:
    return [event for request in ua.requests for event in request.events]


def test_case_99_leading_newline_byte_order_mark_and_odd_encodings(tmp_path, clock, case):
    posts = ["1", "2", "3"]

    def blog(request: RawRequest) -> list[Send]:
        text = RSS.format("".join(map(ITEM.format, posts)))
        return [Send(answer(200, ENCODED[request.target.strip("/")](text)))]

    with db.connection(), RawServer(blog) as server, ScriptedReceiver(now=clock) as ua:
        urls = [f"{server.url}/{name}" for name in ENCODED]
        line = feed_pipeline(tmp_path, clock, ua, urls, [server.url.removeprefix("http://")])
        line.run()
        posts.append("4")
        line.wait(400, step=20)
        titles = sorted(event["subject"]["title"] for event in delivered(ua))
        wanted = sorted(f"Übung {number}" for number in range(1, 5) for _ in ENCODED)
        case.note(served=len(wanted), lost=len(wanted) - len(titles), feeds=len(ENCODED))
        assert titles == wanted
        line.rt.net.close()


def test_case_101_the_item_names_another_playlist(tmp_path, clock, case):
    lists = {"poll_interval_seconds": INTERVAL, "first_poll": "all"}
    with polling_pipeline(tmp_path, clock, playlists=2, videos=3, lists=lists) as yt:
        real = yt.net.get
        liar, other = yt.playlists

        def get(url, **options):
            reply = real(url, **options)
            is_liar = "/playlistItems" in url and liar in url
            return replace(reply, body=reply.body.replace(liar.encode(), b"PLevilevilevilevil")) if is_liar else reply

        yt.net.get = get
        yt.go(300)
        found = [key.rpartition(":")[2] for key in keys()]
        case.note(served=6, lost=6 - len(found), of_the_watched=found.count(liar), of_the_named=found.count("PLevil"))
        assert sorted(found) == sorted([liar] * 3 + [other] * 3)


def test_case_102_group_reads_with_silent_banned_and_busy_members(tmp_path, clock, case):
    with reddit(tmp_path, clock, ["busy", "silent", "quiet", "banned1", "secret1"]) as (line, site):
        site.banned.add("banned1")
        site.private.add("secret1")
        site.publish("busy")
        line.run()
        line.wait(1200, step=15)
        began = clock()
        for number in range(250):
            site.publish("quiet" if number % 50 == 0 else "busy", at=clock() + number / 5)
        line.wait(1500, step=15)
        health = {row.ref: row.health for row in Watch.select()}
        served, requests = expected(site, began), len(site.asked)
        fresh = keys() & served
        case.note(served=len(served), lost=len(served - fresh), requests=requests, bad_members=2)
        assert fresh == served
        assert {ref for ref, state in health.items() if state == "healthy"} == {"busy", "silent", "quiet"}
        assert "private" in Watch.get(ref="secret1").last_error
        assert "banned" in Watch.get(ref="banned1").last_error


def test_case_103_a_hub_that_fails_lies_and_repeats(tmp_path, clock, case):
    """503 on renewal, a wrong topic, forged and doubled pushes, a push and a poll of one item: each video once."""
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        videos = [rig.upload("pushed and polled")]
        rig.push(videos[-1])
        rig.line.wait(400, step=20)
        rig.hub.faults.signature = "wrong"
        videos.append(rig.upload("forged push"))
        rig.push(videos[-1])
        rig.hub.faults.signature, rig.hub.faults.doubled = "right", True
        videos.append(rig.upload("doubled push"))
        statuses = rig.push(videos[-1])
        rig.line.wait(400, step=20)
        rig.hub.faults.doubled, rig.hub.faults.status = False, 503
        clock.time = rig.subscription.due_at + 1
        rig.line.run()
        refused = rig.subscription.last_error
        videos.append(rig.upload("while the hub is away"))
        rig.line.wait(400, step=20)
        rig.hub.faults.status, rig.hub.faults.lie = 202, "topic"
        clock.time = rig.subscription.due_at + 1
        verified = len(rig.hub.verifications)
        rig.line.run()
        rig.wait(lambda: len(rig.hub.verifications) > verified)
        videos.append(rig.upload("while the hub lies"))
        rig.line.wait(400, step=20)
        found = [event["subject"]["video_id"] for event in rig.received()]
        case.note(served=len(videos), lost=len(set(videos) - set(found)), extra=len(found) - len(set(found)))
        assert sorted(found) == sorted(videos)
        assert statuses == [202, 200]
        assert refused == "the hub answered 503"
        assert rig.hub.verifications[-1] == 404


def test_case_104_feeds_and_redirects_into_private_networks(tmp_path, clock, case):
    """By name and by address, configured and by redirect: nothing is contacted, and the other feed is read."""
    with ExitStack() as stack:
        stack.enter_context(db.connection())
        canary, ua = stack.enter_context(Canary()), stack.enter_context(ScriptedReceiver(now=clock))
        private = [f"http://127.0.0.1:{canary.port}/x", f"http://localhost:{canary.port}/x"]
        hops = {f"/to{place}": url for place, url in enumerate([*private, "http://169.254.169.254/latest/"])}

        def blog(request: RawRequest) -> list[Send]:
            if request.target in hops:
                return [Send(answer(302, b"", [("Location", hops[request.target])]))]
            return [Send(answer(200, RSS.format("".join(map(ITEM.format, "123"))).encode()))]

        server = stack.enter_context(RawServer(blog))
        urls = [*(f"{server.url}{path}" for path in ("/good", *hops)), *private]
        line = feed_pipeline(tmp_path, clock, ua, urls, [server.url.removeprefix("http://")])
        stack.callback(line.rt.net.close)
        line.run()
        line.wait(600, step=30)
        errors = {row.ref: row.last_error or "" for row in Watch.select() if row.errors}
        case.note(served=3, lost=3 - len(delivered(ua)), contacted=canary.contacted, refused=len(errors))
        assert len(delivered(ua)) == 3
        assert canary.contacted == 0
        assert set(errors) == set(urls[1:])
        assert all("private network" in text for text in errors.values())
