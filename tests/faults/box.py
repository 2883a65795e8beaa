"""Real processes for a case: a worker that is killed, the real receiver or a scripted one, and their ledgers."""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.fakes.installation import Installation
from tests.fakes.ua import SECRET, UA
from tests.faults.oracle import Ledgers, Taken, read_books

TAKEN = ("accepted", "duplicate")


def publish(box: Installation, number: int, title: str = "Item {}") -> int:
    """New items, most of them in the lists: a feed shows only 15. Returns how many."""
    homes = [*box.yt.playlists * 3, *box.yt.channels]
    for index in range(number):
        home = homes[index % len(homes)]
        put = box.yt.add if home.startswith("PL") else box.yt.upload
        put(home, title.format(index))
    return number


def books(box: Installation, ua: UA | None = None, *, contacted: int = 0) -> Ledgers:
    """S from the simulator's file, A from the database, U from the receiver's file or the scripted one."""
    return read_books(
        box.rows,
        served={line["key"] for line in _lines(box.home / "served.jsonl")},
        taken=ua.taken if ua else received(box.home / "received.jsonl"),
        contacted=contacted,
    )


def received(path: Path) -> list[Taken]:
    return [
        Taken(line["event_id"], line["at"], line["batch_id"], line["request_id"], line["body_sha256"])
        for line in _lines(path)
        if line["verdict"] in TAKEN
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def leaks(box: Installation) -> int:
    """I8 in small: the secrets in the log and in every file of the state directory, in three spellings."""
    files = [box.log, *box.state.glob("*")]
    secrets = [SECRET.encode(), SECRET.encode().hex().encode(), box.yt.api_key.encode()]
    contents = [path.read_bytes() for path in files if path.is_file()]
    return sum(secret in content for secret in secrets for content in contents)


def tracebacks(box: Installation) -> int:
    return box.log.read_text().count("Traceback")


def memory(pid: int) -> float:
    """Resident, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def wal_size(box: Installation) -> float:
    """In MB."""
    path = box.state / "csi.db-wal"
    return path.stat().st_size / 1_048_576 if path.exists() else 0.0


def drained(box: Installation, number: int) -> Callable[[], bool]:
    """Everything that was published is settled: delivered, or an open dead letter."""

    def check() -> bool:
        settled = box.rows("SELECT COUNT(*) FROM events WHERE state NOT IN ('pending', 'in_flight')")
        dead = box.rows("SELECT COUNT(*) FROM dead_letter WHERE cause IN ('malformed', 'crash') AND state = 'open'")
        lone = box.rows("SELECT COUNT(*) FROM events WHERE state = 'quarantined'")
        return bool(settled) and settled[0][0] + dead[0][0] - lone[0][0] >= number

    return check


def moments(rng: random.Random, number: int, low: float, high: float) -> Iterable[float]:
    """When to kill: anywhere between boot and steady work."""
    return (rng.uniform(low, high) for _ in range(number))
