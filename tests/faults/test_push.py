"""Fault cases 141, 142, 159: kill -9 between 202 and processing; a flood of pushes, replays and forged messages."""

import json
import sys
import time
import urllib.error
import urllib.request

import pytest

from csi.ingester.webhook_signature import sign_webhook, webhook_key
from csi.simulator.composio import ComposioSender
from csi.simulator.hub import HUB_PATH, SimulatedHub, video_push
from tests.fakes.background_server import serve_in_background
from tests.rigs.processes import Installation, free_port, installation


def post(url: str, secret: str, message_id: str, body: bytes) -> int:
    headers = sign_webhook(webhook_key(secret), message_id, int(time.time()), body)
    request = urllib.request.Request(url, body, headers | {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def event(number: int) -> bytes:
    return json.dumps(
        {
            "event_id": f"script:{number}",
            "dedupe_key": f"script:item:{number}",
            "source": "script",
            "event_type": "post",
            "occurred_at": "2026-02-22T12:00:00Z",
            "subject": {"title": f"Post {number}"},
        }
    ).encode()


def serve(box: Installation, port: int, **env: str):
    process = box.start(sys.executable, "-m", "csi.main", **env)

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    box.wait_for(answers, seconds=60)
    return process


def send_until_accepted(box: Installation, port: int, access: dict, number: int, sidecar):
    """Repeats as a sender does: with the same id, until 2xx. Returns the sidecar that is running then."""
    for _ in range(20):
        if post(access["url"], access["secret"], f"msg_{number}", event(number)) in (200, 202):
            return sidecar
        if sidecar.poll() is not None:
            sidecar = serve(box, port)
    raise AssertionError("the message was never accepted")


@pytest.mark.faults
def test_case_141_kill_9_between_202_and_processing(case, tmp_path, seed):
    """Each message is answered 202, then worker and sidecar die at once: the rows bring every event, each once."""
    with installation(tmp_path, channels=0, playlists=0) as box:
        port = free_port()
        box.change(lambda config: config.update(web={"port": port}, inbound={"enabled": True}))
        worker, sidecar = box.start(), serve(box, port)
        box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats"), seconds=60)
        made = box.csi("inbound", "add", "script", "--json")
        assert made.returncode == 0, made.stderr
        access, total = json.loads(made.stdout), 12
        for number in range(total):
            sidecar = send_until_accepted(box, port, access, number, sidecar)
            if number % 3 == 2:
                box.kill(worker)
                box.kill(sidecar)
                worker, sidecar = box.start(), serve(box, port)
        box.wait_for(lambda: box.delivered() == total, seconds=90)
        counts = dict(box.rows("SELECT state, COUNT(*) FROM inbound_messages GROUP BY state"))
        again = [post(access["url"], access["secret"], f"msg_{number}", event(number)) for number in range(total)]
        stored = box.rows("SELECT COUNT(*), COUNT(DISTINCT dedupe_key) FROM events")
        text = box.log.read_text()
        case.note(served=total, lost=total - stored[0][1], stored=stored[0][0], kills=8, done=counts.get("done", 0),
                  repeated=again.count(200), leaks=text.count(access["secret"]) + text.count(access["url"][-40:]),
                  seed=seed)  # fmt: skip
        assert stored == [(total, total)]
        assert counts == {"done": total}
        assert again == [200] * total
        assert access["secret"] not in text
        assert access["url"].rpartition("/")[2] not in text


@pytest.mark.faults
def test_case_159_kill_9_between_202_and_processing_of_pushes(case, tmp_path, seed):
    """A hub's push and an item of Composio are answered 202, then worker and sidecar die at once. Both bring their
    event, with the key that a later poll finds; nothing is polled in between."""
    hub, port, secret = SimulatedHub(), free_port(), "composio-secret-of-the-project"
    with serve_in_background(hub.app()) as hub_url, installation(tmp_path, playlists=1) as box:

        def push(config: dict) -> None:
            for source in config["sources"].values():
                source["poll_interval_seconds"] = 3600
            here = f"http://127.0.0.1:{port}"
            config["sources"]["youtube_channel_rss"]["push"] = {"hub_url": f"{hub_url}{HUB_PATH}", "callback_url": here}
            config.update(web={"port": port}, inbound={"public_url": here})

        box.change(push)
        (channel,), (playlist,) = box.yt.channels, box.yt.playlists
        variables = {"CSI_COMPOSIO_SECRET": secret}
        sidecar, worker = serve(box, port, **variables), box.start()
        box.wait_for(lambda: box.rows("SELECT 1 FROM subscriptions WHERE state = 'verified'"), seconds=60)
        made = box.csi("inbound", "add", "composio", "--kind", "composio", "--secret-env", "CSI_COMPOSIO_SECRET",
                       "--json", **variables)  # fmt: skip
        assert made.returncode == 0, made.stderr
        composio, rounds, statuses = ComposioSender(json.loads(made.stdout)["url"], secret), 3, []
        for number in range(rounds):
            video = box.yt.upload(channel, f"Pushed {number}")
            item = listed(box, playlist, box.yt.add(playlist, f"Triggered {number}"))
            statuses += hub.push(box.yt.feed_url(channel), video_push(channel, video, time.time()))
            statuses.append(composio.playlist_item(item))
            box.kill(worker)
            box.kill(sidecar)
            sidecar, worker = serve(box, port, **variables), box.start()
        total = 2 * rounds
        box.wait_for(lambda: box.delivered() == total, seconds=120)
        polled = [box.csi("sources", "poll", ref) for ref in (channel, playlist)]
        counts = dict(box.rows("SELECT state, COUNT(*) FROM inbound_messages GROUP BY state"))
        (stored,) = box.rows("SELECT COUNT(*), COUNT(DISTINCT dedupe_key) FROM events")
        case.note(served=total, lost=total - stored[1], extra=stored[0] - total, kills=2 * rounds, seed=seed)
        assert (set(statuses), [one.returncode for one in polled]) == ({202}, [0, 0])
        assert counts == {"done": total}
        assert stored == (total, total)


def listed(box: Installation, playlist: str, video: str) -> dict:
    """An item of the playlist as the API lists it."""
    query = {"part": "snippet,contentDetails,status", "playlistId": playlist, "maxResults": "50"}
    page = box.yt.site.api("playlistItems", query, box.yt.api_key, time.time())
    return next(item for item in json.loads(page.body)["items"] if item["contentDetails"]["videoId"] == video)


def test_case_142_flood_replays_and_forgeries(case, tmp_path, clock, seed):
    """A thousand forged and repeated requests store one row each at most, and the event comes once."""
    from tests.rigs.push import push_rig

    with push_rig(tmp_path, clock, inbound={"max_messages_per_minute": 60}) as rig:
        access = rig.sender("script", tier="urgent")
        body, now = event(1), int(clock())
        good = sign_webhook(webhook_key(access.secret), "msg_1", now, body)
        forged = good | {"webhook-signature": "v1,AAAA"}
        statuses = [rig.post(access.url, body, good if place % 3 == 0 else forged) for place in range(90)]
        rig.line.wait(2)
        strangers = {rig.net.post(f"{rig.url}/hooks/x{n}/y", body=body, headers=good).status for n in range(10)}
        delivered = len(rig.received("post"))
        case.note(served=1, lost=1 - delivered, accepted=statuses.count(202), repeated=statuses.count(200),
                  forged=statuses.count(401), flood=statuses.count(503), seed=seed)  # fmt: skip
        assert (statuses.count(202), statuses.count(503), delivered) == (1, 30, 1)
        assert strangers == {404}
