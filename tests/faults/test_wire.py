"""Fault cases 27, 28, 33: what the wire does to a request, in real time: drips, cuts, TLS, slow receivers."""

import json
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from csi.errors import NetError
from csi.net import HttpLimits, HttpResponse, Net
from csi.pipeline.wake import Wake
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings
from csi.store import db
from tests.fakes.background_server import serve_in_background
from tests.fakes.fault_proxy import LOST, FaultProxy, Manner
from tests.fakes.raw_server import Canary, RawServer, answer
from tests.fakes.scripted_receiver import SECRET, Cut, Reply, ScriptedReceiver, Slow, accept, json_reply
from tests.rigs.in_process import ledger_pipeline

TLS = Path(__file__).resolve().parents[1] / "data" / "tls"
QUICK = {"timeout_seconds": 0.4}
WORDS = b'{"ok": true, "accepted": 0, "rejected": 0, "errors": []}'
LIMITS = HttpLimits(total=2.0)
WIRES = {
    "latency": Slow(seconds=2, arrives=False),
    "drip": Slow(size=1, pause=0.05, arrives=False),
    "bandwidth": Slow(size=8, pause=0.1, arrives=False),
    "cut-head": Cut(at=20),
    "cut-body": Cut(at=70),
    "closed-early": Cut(at=70, orderly=True),
    "nothing": Cut(at=0, orderly=True),
}


@pytest.mark.parametrize("wire", WIRES)
def test_case_27_the_total_deadline_holds(case, tmp_path, seed, wire):
    """The receiver takes it and the answer does not arrive: within the deadline it is over, and comes once more."""
    with ledger_pipeline(tmp_path, lambda request: accept(request).on(WIRES[wire]), delivery=QUICK) as s:
        s.publish(1)
        began = time.monotonic()
        s.run()
        took = time.monotonic() - began
        s.wait(40)
        account = case.close(s.books(), seed=seed, ended_after=f"{took:.2f}s<=1.5s")
        assert took < 1.5
        assert (s.states(), account.extra) == ({"delivered": 1}, 1)


def test_case_27_cut_at_every_byte(case, seed):
    """One answer, cut after each of its bytes: never an exception, never delivered."""
    whole, believed = len(answer(200, WORDS)), 0
    for at in range(whole):
        with ScriptedReceiver(Reply(200, WORDS, wire=Cut(at))) as ua, Net() as net:
            believed += not isinstance(post(net, ua.url), NetError)
    case.note(bytes=whole, believed=believed, seed=seed)
    assert (believed, whole > 80) == (0, True)


def post(net: Net, url: str) -> HttpResponse | NetError:
    try:
        return net.post(url, body=b'{"events": []}', headers={"Content-Type": "application/json"}, limits=LIMITS)
    except NetError as error:
        return error


PROXIED = {
    "latency": Manner(latency=0.1),
    "drip": Manner(piece=16, pause=0.01),
    "lost-after-acceptance": LOST,
    "cut-after-30-bytes": Manner(keep=30),
    "reset-before-delivery": Manner(refuse=True),
}


@pytest.mark.parametrize("name", PROXIED)
def test_case_27_through_the_proxy_to_the_real_receiver(case, tmp_path, seed, name):
    """The first two answers are treated like this, the rest pass; the real receiver recognises what it knows."""
    settings = ReceiverSettings(secret=SECRET, db_path=tmp_path / "r.db", ledger_path=tmp_path / "received.jsonl")
    manners = [PROXIED[name]] * 2
    with serve_in_background(create_app(settings)) as url, ledger_pipeline(tmp_path, lists=3, clock=WallClock()) as s:
        host, port = url.removeprefix("http://").split(":")
        with FaultProxy((host, int(port)), lambda: manners.pop() if manners else Manner()) as proxy:
            s.rt.destinations["default"] = moved(s.rt.destinations["default"], proxy.url(INGEST_PATH))
            s.publish(6, ref=-1)
            s.run()
            s.wait(60)
        received = ledger(tmp_path / "received.jsonl")
        extra = len(received) - len(set(received))
        case.note(delivered=s.states()["delivered"], extra=f"{extra}<={proxy.lost}", refused=proxy.refused, seed=seed)
        assert s.states() == {"delivered": 6}
        assert len(set(received)) == 6
        assert extra <= proxy.lost


class WallClock:
    """Starts at the true time, as the real receiver's does, and is moved by hand."""

    def __init__(self) -> None:
        self.time = time.time() - 100  # a minute or two of waiting stays within the receiver's tolerance

    def __call__(self) -> float:
        return self.time

    def move(self, seconds: float) -> float:
        self.time += seconds
        return self.time


def moved(destination, url: str):
    return replace(destination, receiver=replace(destination.receiver, url=url))


def ledger(path: Path) -> list[str]:
    return [json.loads(line)["event_id"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["expired", "localhost", "other"])
def test_case_28_bad_certificates(case, tmp_path, seed, name):
    """Expired, self-signed, another host's: refused before a single byte of the request is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
    with RawServer(tls=context) as server, ledger_pipeline(tmp_path, lists=3) as s:
        s.rt.destinations["default"] = moved(s.rt.destinations["default"], f"{server.url}/api/v1/signals/ingest")
        if name != "localhost":
            s.rt.net = Net(verify=ssl.create_default_context(cafile=TLS / f"{name}.pem"))
        s.publish(3, ref=-1)
        s.run()
        s.wait(60, step=5)
        causes = db.fetch("SELECT cause, COUNT(*) FROM dead_letter GROUP BY cause")
        held = dict(s.states())
        s.rt.destinations["default"] = moved(s.rt.destinations["default"], s.ua.url)
        took = s.back_in()
        case.close(s.books(), seed=seed, requests_sent=len(server.requests), back=f"{took:.0f}s")
        assert server.requests == []
        assert (causes, held) == ([("destination", 1)], {"dead": 1, "pending": 2})


def test_case_25_the_second_hop_is_never_visited(case, tmp_path, seed):
    with Canary() as canary, ledger_pipeline(tmp_path) as s:
        s.ua.then = lambda request: json_reply(307, location=canary.url)
        s.publish(1)
        s.run()
        s.wait(60, step=5)
        case.close(s.books(), seed=seed, second_hops=canary.contacted)
        assert canary.contacted == 0


def test_case_33_urgent_behind_a_large_batch(case, tmp_path, seed):
    """A receiver that holds every standard request: an urgent one overtakes them all."""
    free = threading.Event()

    def holding(request):
        if request.events[0]["routing"]["priority"] != "urgent":
            free.wait(20)
        return accept(request)

    with ledger_pipeline(tmp_path, then=holding, lists=2, tier="high_volume") as s:
        s.publish(500, ref=0)
        s.run_without_delivery()
        s.clock.move(61)
        lanes = [threading.Thread(target=work, args=(s, wake)) for wake in flush_all(s, "high_volume")]
        for lane in lanes:
            lane.start()
        waited = overtake(s)
        overtook = len(s.ua.taken)
        free.set()
        for lane in lanes:
            lane.join(30)
        s.wait(30, step=5)
        case.close(s.books(), seed=seed, urgent_after=f"{waited:.2f}s<=2s", held=len(lanes), overtook=overtook)
        assert (waited < 2, overtook) == (True, 1)
        assert s.states() == {"delivered": 501}


def flush_all(s, tier: str) -> list[Wake]:
    return list(s.step(Wake("flush", f"default/{tier}")))


def work(s, wake: Wake) -> None:
    """One of Huey's threads."""
    with db.connection():
        s.step(wake)


def overtake(s) -> float:
    """Publish one item on the second list, as urgent, and see how long it takes to arrive."""
    db.run("UPDATE watches SET tier = 'urgent' WHERE ref = ?", s.lists[1])
    s.publish(1, ref=1)
    s.clock.move(10)
    began = time.monotonic()
    wakes = [Wake("poll", pk) for (pk,) in db.fetch("SELECT id FROM watches WHERE ref = ?", s.lists[1])]
    while wakes:
        wakes += s.step(wakes.pop(0))
    return time.monotonic() - began


def test_case_27_a_reply_is_what_it_says(case):
    """The harness itself: `takes` follows the status unless told otherwise."""
    with ScriptedReceiver(Reply(200, takes=frozenset())) as ua, Net() as net:
        got = post(net, ua.url)
    case.note(taken=len(ua.taken), status=got.status)
    assert (ua.taken, got.status) == ([], 200)
