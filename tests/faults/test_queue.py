"""Case 120: a stranger writes to the queue. Forged messages run nothing, and the work beside them is done."""

import pytest

from tasks.queue import open_storage
from tests.fakes.forged import forged_messages
from tests.rigs.processes import installation, publish, read_process_ledgers, tracebacks

pytestmark = pytest.mark.slow

COMMANDS = (("tasks", "list"), ("tasks", "stats"), ("doctor", "--offline"))
WITHOUT_SECRETS = {"CSI_UA_ENDPOINT": "", "CSI_UA_SHARED_SECRET": "", "CSI_QUEUE_SECRET": ""}


@pytest.mark.parametrize("place", ["sqlite", "redis"])
def test_case_120_forged_messages(case, tmp_path, request, seed, place):
    """Before the start, in a shell without secrets, and beside a worker at work: pickles and JSON, with and without a
    signature, with the constant key of version 1.0.0 among them."""
    queue = request.getfixturevalue("redis_url") if place == "redis" else None
    trap = tmp_path / "executed"
    with installation(tmp_path, queue=queue) as box:
        url = queue or str(box.state / "queue.db")
        box.csi("db", "migrate")
        forged = put_forged(url, trap)
        answers = [box.csi(*command, **WITHOUT_SECRETS) for command in COMMANDS]
        total = publish(box, 6)
        box.start()
        box.wait_for(box.delivered)
        for _ in range(20):
            forged += put_forged(url, trap)
        total += publish(box, 6)
        box.wait_for_delivered(total)
        storage = open_storage(url)
        box.wait_for(lambda: not any(storage.enqueued_items()))
        storage.close()
        lines = box.logged("tasks.huey_worker", "messages")
        numbers = {"forged": forged, "executed": int(trap.exists()), "tracebacks": tracebacks(box)}
        case.close(read_process_ledgers(box), **numbers, lines=f"{len(lines)}<=3", seed=seed)
        assert not trap.exists()
        assert all("cannot be verified" in done.stdout + done.stderr for done in answers)
        assert not any("Traceback" in done.stderr for done in answers)
        assert len(lines) <= 3, lines
        assert "old" in lines[0], "the first line counts the messages of version 1.0.0"


def put_forged(url: str, trap) -> int:
    storage, messages = open_storage(url), forged_messages(trap)
    for data in messages:
        storage.enqueue(data, 90)
    storage.close()
    return len(messages)
