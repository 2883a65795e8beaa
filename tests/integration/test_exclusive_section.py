"""Turns at a desk: one thread at a time, and nobody keeps it while the network makes him wait."""

import threading

from csi.exclusive_section import ExclusiveSection
from csi.net import Net
from tests.fakes.scripted_receiver import ReceivedRequest, Reply, ScriptedReceiver


def taken_by_another(desk: ExclusiveSection, seconds: float = 10.0) -> bool:
    """Whether another thread gets it within this time."""
    got = threading.Event()

    def sit_down() -> None:
        with desk:
            got.set()

    threading.Thread(target=sit_down, daemon=True).start()
    return got.wait(seconds)


def test_a_desk_is_free_while_its_thread_waits_for_an_answer():
    desk, free = ExclusiveSection(), []

    def answer(_: ReceivedRequest) -> Reply:
        free.append(taken_by_another(desk))
        return 200, {"ok": True}, {}

    with ScriptedReceiver(then=answer) as ua, Net() as net, desk:
        assert net.post(ua.url, body=b"{}", headers={}).status == 200
        assert not taken_by_another(desk, 0.05)
    assert free == [True]
