"""The tables of push, on SQLite and PostgreSQL."""

from csi.store import db, events, inbound_endpoints, inbound_messages, subscriptions
from csi.store.inbound_messages import NewMessage
from csi.store.models import Watch

NOW = 1_771_761_600.0


def message(body: bytes = b"{}", message_id: str = "m1") -> NewMessage:
    return NewMessage("n8n", "events", 1, message_id, body)


def test_a_message_is_stored_once_claimed_by_one_and_counted_when_its_lease_expires(store):
    with db.connection(), db.writing():
        assert inbound_messages.add(message(b"\xff\x00"), NOW) == "stored"
        assert inbound_messages.add(message(b"\xff\x00"), NOW) == "repeated"
        assert inbound_messages.add(message(b"other"), NOW) == "conflict"
        (number,) = inbound_messages.overdue(NOW)
        assert inbound_messages.overdue(NOW + 1) == []
        first = inbound_messages.claim(number, NOW)
        assert (first.content, first.claims) == (b"\xff\x00", 0)
        assert inbound_messages.claim(number, NOW + 1) is None
        assert inbound_messages.overdue(NOW + 31) == [number]
        second = inbound_messages.claim(number, NOW + 31)
        assert second.claims == 1
        assert not inbound_messages.settle(first, "done", "late", NOW + 32)
        assert inbound_messages.settle(second, "failed", "why", NOW + 32)
        assert [one.messages for one in inbound_messages.failed()] == [1]
        assert inbound_messages.replay([number], NOW + 40) == [number]
        assert inbound_messages.delete_old(NOW + 100) == 0


def test_of_two_messages_that_were_in_two_crashes_one_is_handled_at_a_time(store):
    with db.connection(), db.writing():
        for name in ("m1", "m2"):
            inbound_messages.add(message(name.encode(), name), NOW)
        numbers = inbound_messages.overdue(NOW)
        for crash in range(2):
            claimed = [inbound_messages.claim(number, NOW + 31 * crash) for number in numbers]
            assert [one.claims for one in claimed] == [crash, crash]
        later = NOW + 62
        first, second = (inbound_messages.claim(number, later) for number in numbers)
        assert (first.claims, second) == (2, None)
        inbound_messages.settle(first, "done", "", later)
        assert inbound_messages.claim(numbers[1], later).claims == 2


def test_a_subscription_is_claimed_verified_and_counted(store):
    with db.connection(), db.writing():
        watch = Watch.create(
            source="feed", ref="x", tier="standard", interval_seconds=300, next_poll_at=NOW, wake_at=NOW, created_at="t"
        )
        subscriptions.add(watch.id, "websub", NOW, hub_url="h", topic="t", due_at=NOW)
        subscriptions.add(watch.id, "websub", NOW, hub_url="h", topic="t", due_at=NOW)
        (number,) = subscriptions.due(NOW)
        claimed = subscriptions.claim(number, NOW)
        assert subscriptions.claim(number, NOW + 1) is None
        subscriptions.change(number, state="requested")
        assert subscriptions.verify(number, lease=1000.0, renew_at=NOW + 750, now=NOW)
        subscriptions.settle(claimed, was=("requested",), state="failing")
        row = subscriptions.of_watch(watch.id)
        assert (row.state, row.expires_at, row.lease_token, row.stretched) == ("verified", NOW + 1000, None, False)
        subscriptions.note_items(number, "pushed", {"k1": NOW, "k2": NOW}, NOW)
        assert subscriptions.is_awaited(watch.id)
        assert [item.item_key for item in subscriptions.due_items(NOW)] == ["k1", "k2"]
        subscriptions.drop_items([item.id for item in subscriptions.due_items(NOW)])
        subscriptions.count(number, pushes=2, misses=1)
        subscriptions.change(number, stretched=True)
        row = subscriptions.find(number)
        assert (row.pushes, row.misses, bool(row.stretched)) == (2, 1, True)


def test_a_sender_that_was_removed_and_added_again_has_another_address_and_secret(store):
    with db.connection(), db.writing():
        kept = {"source": None, "ref": None, "tier": "standard", "secret_env": None, "now": NOW}
        first = inbound_endpoints.add("n8n", "events", **kept)
        assert inbound_endpoints.add("n8n", "events", **kept) is None
        inbound_endpoints.note_refused(first.id, "bad_signature", NOW)
        assert inbound_endpoints.find("n8n").refused == 1
        inbound_endpoints.note_accepted(first.id, NOW)
        assert inbound_endpoints.find("n8n").refused == 0
        assert inbound_endpoints.remove("n8n")
        again = inbound_endpoints.add("n8n", "events", **kept)
        assert (again.generation, again.address) == (first.generation + 1, first.address + 1)
        assert events.mark_removed("nothing", NOW) is None
