"""Fault cases 141–142: kill -9 between 202 and processing; a flood of pushes, replays and forged messages."""

import json
import sys
import time
import urllib.error
import urllib.request

import pytest

from csi.ingester.webhook_signature import sign_webhook, webhook_key
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


def serve(box: Installation, port: int):
    process = box.start(sys.executable, "-m", "csi.main")

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
