"""Exclusive sections: one thread at a time, and no thread keeps its section while it waits for the network."""

import threading

from csi.exclusive_section import ExclusiveSection
from csi.net import Net
from tests.fakes.scripted_receiver import ReceivedRequest, Reply, ScriptedReceiver


def taken_by_another(section: ExclusiveSection, seconds: float = 10.0) -> bool:
    """Whether another thread gets it within this time."""
    got = threading.Event()

    def enter() -> None:
        with section:
            got.set()

    threading.Thread(target=enter, daemon=True).start()
    return got.wait(seconds)


def test_a_section_is_free_while_its_thread_waits_for_an_answer():
    section, free = ExclusiveSection(), []

    def answer(_: ReceivedRequest) -> Reply:
        free.append(taken_by_another(section))
        return 200, {"ok": True}, {}

    with ScriptedReceiver(then=answer) as ua, Net() as net, section:
        assert net.post(ua.url, body=b"{}", headers={}).status == 200
        assert not taken_by_another(section, 0.05)
    assert free == [True]
