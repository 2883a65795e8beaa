"""A stand for one case in one thread: a source in hand, the real walk, a receiver with a ledger, a clock in hand."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from csi.store import db
from tests.conftest import HandClock
from tests.fakes.canary import Canary
from tests.fakes.line import Line
from tests.fakes.shelf import Shelf, list_id
from tests.fakes.ua import UA, Behaviour, accept
from tests.faults.oracle import Ledgers, read_books


class Stand:
    """The line between shelf and receiver. Time passes only in `wait`."""

    def __init__(self, home: Path, clock: HandClock, ua: UA, canary: Canary, *, lists: int, **options: Any) -> None:
        self.clock, self.ua, self.canary = clock, ua, canary
        self.line = Line(home, clock, ua.url, **_config(lists, **options))
        self.rt = self.line.rt
        self.lists = [list_id(number) for number in range(lists)]
        self.shelf = Shelf(self.rt.settings.sources["youtube_playlist"])
        self.rt.adapters["youtube_playlist"] = self.shelf

    def publish(self, number: int, *, ref: int = 0, title: str = "Item {}", spacing: float = 0.0) -> list[str]:
        """So many new items on one list, or spread over all of them (`ref=-1`); their keys."""
        start = self.clock() - spacing * number
        return [
            self.shelf.put(
                self.lists[index % len(self.lists) if ref < 0 else ref], start + spacing * index, title.format(index)
            )
            for index in range(number)
        ]

    def run(self) -> None:
        self.line.run()

    def wait(self, seconds: float, step: float = 1.0) -> None:
        self.line.wait(seconds, step=step)

    def back_in(self, limit: float = 90.0, step: float = 1.0) -> float:
        """Seconds until nothing waits any more (I9); `limit` when it still does."""
        start = self.clock()
        while self.clock() - start < limit and self.waiting():
            self.wait(step, step=step)
        return self.clock() - start

    def waiting(self) -> int:
        """What has to come: inbox, outbox, and dead letters that redrive will take."""
        return sum(self.count(query) for query in _WAITING)

    def count(self, query: str) -> int:
        return int(db.fetch(query)[0][0])

    def states(self) -> dict[str, int]:
        return dict(db.fetch("SELECT state, COUNT(*) FROM events GROUP BY state"))

    def heal(self, behaviour: Behaviour = accept) -> None:
        """The receiver works again."""
        self.ua.script, self.ua.then = [], behaviour

    def books(self) -> Ledgers:
        return read_books(
            lambda query: db.fetch(query),
            served=self.shelf.served,
            taken=self.ua.taken,
            contacted=self.canary.contacted,
        )


_WAITING = (
    "SELECT COUNT(*) FROM inbox WHERE state = 'new'",
    "SELECT COUNT(*) FROM outbox",
    "SELECT COUNT(*) FROM dead_letter WHERE state IN ('open', 'replaying') AND cause IN ('transient', 'endpoint')",
)


@contextmanager
def stand(home: Path, *script: Behaviour, then: Behaviour = accept, lists: int = 1, **options: Any) -> Iterator[Stand]:
    clock = options.pop("clock", None) or HandClock()
    with UA(*script, then=then, now=clock) as ua, Canary() as canary, db.connection():
        built = Stand(home, clock, ua, canary, lists=lists, **options)
        try:
            yield built
        finally:
            built.rt.net.close()


def fresh(home: Path) -> Path:
    """An empty place below `home`."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return home


def _config(
    lists: int,
    *,
    tier: str = "urgent",
    interval: float = 10,
    first_poll: Any = "all",
    database: str | None = None,
    **blocks: Any,
) -> dict[str, Any]:
    """One playlist source; `delivery`, `dlq` and the other blocks as in the config file."""
    source = {
        "first_poll": first_poll,
        "poll_interval_seconds": interval,
        "priority": tier,
        "quota_limit": 1_000_000,
        "api_base_url": "http://127.0.0.1:9/never",
        "adaptive_polling": {"enabled": False},
        "playlists": [{"id": list_id(number)} for number in range(lists)],
    }
    own = {"csi": {"database": database}} if database else {}
    return {"sources": {"youtube_playlist": source}, **own, **blocks}
