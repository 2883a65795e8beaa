"""Queue messages: signed JSON that only the key of the queue opens, and never a pickle."""

import datetime
import pickle
from types import SimpleNamespace

import pytest
from huey import MemoryHuey
from huey.registry import Message

from tasks.huey_worker import QueueHuey
from tasks.serializer import PREFIX, JsonSerializer, UnreadableMessage, is_from_1_0
from tests.fakes.forged import Trap, forged_messages, pickles_of_1_0

KEY = "the-key-of-this-queue"
ETA = datetime.datetime(2026, 2, 22, 12, 0, 0, 750_000)


@pytest.fixture
def serializer():
    return JsonSerializer(KEY, "csi")


def message(**fields) -> Message:
    return Message(**{"id": "one", "name": "tasks.poll.poll_watch", "args": (7,), "kwargs": {}} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"args": ("default/standard", 1, 2.5, True, None, ["a", {"b": [1]}], "Über \u2028 \x00")},
        {"kwargs": {"limit": 3}},
        {"eta": ETA, "retries": 2, "retry_delay": 20.5, "retry_backoff": 3, "priority": 50, "timeout": 4},
        {"expires": 60, "expires_resolved": ETA},
        {"expires": ETA},
    ],
)
def test_a_message_is_the_same_after_the_journey(serializer, fields):
    assert serializer.deserialize(serializer.serialize(message(**fields))) == message(**fields)


def test_a_time_is_written_with_its_zone_and_read_in_utc(serializer):
    data = serializer.serialize(message(eta=ETA))
    assert b'"eta":"2026-02-22T12:00:00.750000+00:00"' in data
    berlin = ETA.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert serializer.deserialize(serializer.serialize(message(eta=berlin))).eta == ETA - datetime.timedelta(hours=1)


def test_every_changed_byte_is_noticed(serializer):
    data = serializer.serialize(message())
    for index in range(len(data)):
        with pytest.raises(UnreadableMessage):
            serializer.deserialize(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
    for cut in (data[:-1], data + b" ", b"", data[: len(PREFIX)]):
        with pytest.raises(UnreadableMessage):
            serializer.deserialize(cut)


@pytest.mark.parametrize("other", [JsonSerializer("another-key", "csi"), JsonSerializer(KEY, "csi-processing")])
def test_another_key_and_another_queue_are_refused(serializer, other):
    with pytest.raises(UnreadableMessage):
        serializer.deserialize(other.serialize(message()))


def test_a_forged_message_is_never_opened(serializer, tmp_path):
    trap = tmp_path / "executed"
    for data in forged_messages(trap):
        with pytest.raises(UnreadableMessage):
            serializer.deserialize(data)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Trap(trap))).close()
    assert trap.exists(), "the trap itself works"


def test_messages_of_1_0_are_recognised_without_opening_them(serializer, tmp_path):
    trap = tmp_path / "executed"
    assert all(map(is_from_1_0, pickles_of_1_0(trap)))
    assert not any(map(is_from_1_0, [serializer.serialize(message()), b"", b"garbage", b"\x80\x05garbage"]))
    assert not trap.exists()


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", ETA, float("nan"), 1j])
def test_an_argument_that_is_not_json_is_refused_when_it_is_sent(serializer, value):
    with pytest.raises((TypeError, ValueError)):
        serializer.serialize(message(args=(value,)))


@pytest.mark.parametrize("field", ["on_complete", "on_error", "chord_config"])
def test_one_message_is_one_task(serializer, field):
    with pytest.raises(TypeError, match="one task"):
        serializer.serialize(message(**{field: message()}))


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b"{",
        b'{"id":"a","name":"b"}',
        b'{"id":"a","name":"b","args":{},"kwargs":{}}',
        b'{"id":"a","name":"b","args":[],"kwargs":{},"more":1}',
        b'{"id":"a","name":"b","args":[],"kwargs":{},"on_error":{}}',
        b'{"id":"a","name":"b","args":[],"kwargs":{},"eta":"2026-02-22T12:00:00"}',
    ],
)
def test_what_is_signed_and_no_task_is_refused(serializer, body):
    with pytest.raises(UnreadableMessage, match="no task"):
        serializer.deserialize(PREFIX + serializer._signature(body) + b":" + body)


class MemoryQueue(QueueHuey, MemoryHuey):
    """The project's Huey on a queue in memory."""


@pytest.fixture
def huey(serializer):
    made = MemoryQueue("csi", results=False, utc=True, serializer=serializer)
    made.worker = SimpleNamespace(is_done=lambda task: False)
    return made


def test_only_tasks_that_are_registered_come_out_of_the_queue(huey, serializer, monkeypatch):
    lines = logged(monkeypatch)

    @huey.task(priority=5)
    def known(number):
        return number

    huey.storage.enqueue(serializer.serialize(message(name="os.system", args=("true",))), 9)
    huey.enqueue_many([known.s(1)])
    task = huey.dequeue()
    assert (task.name, task.args, huey.dequeue()) == ("known", (1,), None)
    assert lines == [("unreadable messages were dropped from the queue", {"messages": 1})]


def test_a_flood_of_forged_messages_is_one_line_a_minute(huey, tmp_path, monkeypatch):
    lines = logged(monkeypatch)
    for _ in range(3):
        for data in forged_messages(tmp_path / "executed"):
            huey.storage.enqueue(data)
        assert huey.dequeue() is None
    assert [words for words, _ in lines] == ["unreadable messages were dropped from the queue"]
    assert not (tmp_path / "executed").exists()


def test_the_first_start_after_1_0_drops_its_messages_with_one_line(huey, serializer, tmp_path, monkeypatch):
    lines = logged(monkeypatch)
    huey.drop_messages_of_1_0()
    assert lines == []
    for data in pickles_of_1_0(tmp_path / "executed"):
        huey.storage.enqueue(data)
        huey.storage.add_to_schedule(data, ETA)
    huey.storage.enqueue(serializer.serialize(message()))
    huey.drop_messages_of_1_0()
    words = "queue was emptied: messages of version 1.0.0 are not read"
    assert lines == [(words, {"messages": 5, "old": 4})]
    assert (huey.pending_count(), huey.scheduled_count()) == (0, 0)
    assert not (tmp_path / "executed").exists()


def logged(monkeypatch) -> list[tuple[str, dict]]:
    lines = []
    monkeypatch.setattr("tasks.huey_worker.log.warning", lambda words, **keys: lines.append((words, keys)))
    return lines
