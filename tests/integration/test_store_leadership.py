"""One worker holds a role by a lease; another takes it over when the lease expires or is released at shutdown."""

import threading
from types import SimpleNamespace

import pytest

from csi.runtime import ProcessState
from csi.store import db, leases
from csi.worker import leader

NOW = 1_771_761_600.0
LEASE = leases.LEADER_SECONDS

pytestmark = pytest.mark.usefixtures("store")


def hold(holder: str, now: float = NOW) -> bool:
    return leases.hold_leadership("planner", now, holder=holder)


def test_one_has_it_and_keeps_it():
    assert (hold("a"), hold("b")) == (True, False)
    assert [hold("a", NOW + seconds) for seconds in (1, 3, 5, 7)] == [True] * 4
    assert hold("b", NOW + 8) is False


def test_another_takes_over_within_seconds_of_a_death():
    hold("a")
    assert hold("b", NOW + LEASE - 0.1) is False
    assert hold("b", NOW + LEASE + 0.1) is True
    assert hold("a", NOW + LEASE + 0.2) is False


def test_an_orderly_end_gives_it_back_at_once():
    assert leases.hold_leadership("planner", NOW)
    leases.release_own(NOW)
    assert hold("b", NOW + 0.1)


def test_a_clock_that_was_ahead_binds_nobody():
    hold("a", NOW + 3600)
    assert hold("b") is True


def test_a_holder_renews_only_when_half_of_it_is_used():
    hold("a")
    hold("a", NOW + 1)
    assert db.fetch("SELECT lease_until FROM leadership") == [(NOW + LEASE,)]
    hold("a", NOW + 3)
    assert db.fetch("SELECT lease_until FROM leadership") == [(NOW + 3 + LEASE,)]


def test_of_many_who_ask_at_once_one_has_it():
    found: list[bool] = []

    def ask(name: str) -> None:
        with db.connection():
            found.append(hold(name))

    threads = [threading.Thread(target=ask, args=(f"worker {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]


def test_a_worker_whose_queue_is_away_lets_go(store):
    rt = SimpleNamespace(now=lambda: NOW, process=ProcessState())
    assert leader.leads(rt)
    assert leader.has_led(rt)
    if store == "sqlite":
        assert leader.leads(rt, able=False), "there is nobody else"
        return
    assert not leader.leads(rt, able=False)
    assert not leader.has_led(rt)
    assert hold("b", NOW + LEASE + 0.1)
