"""An operator's desk: an installation's database with rows in it, and `csi` called as a person would."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from csi.cli.main import cli
from csi.dlq import dead_letters
from csi.ingester.event import CreatorSignalEvent
from csi.runtime import Runtime, open_runtime
from csi.store import batches, db, events, heartbeats, outbox, watches
from csi.store.models import DeadLetter, OutboxEntry
from tests.fakes.receiver import SECRET

SOURCE = "youtube_playlist"


class Desk:
    """One configuration and its database. Times are real, since commands read the real clock."""

    def __init__(self, home: Path, ua_url: str = "http://127.0.0.1:9/ingest", **blocks: Any) -> None:
        self.config = home / "config.yaml"
        blocks.setdefault("sources", {SOURCE: {"playlists": [{"id": "PLone"}, {"id": "PLtwo"}]}})
        blocks.setdefault("csi", {})
        blocks["csi"] |= {"state_dir": str(home / "state")}
        self.config.write_text(yaml.safe_dump(blocks))
        self.env = {
            **{name: None for name in os.environ if name.startswith(("CSI_", "YOUTUBE_")) or name == "PORT"},
            "CSI_CONFIG_PATH": str(self.config),
            "CSI_UA_ENDPOINT": ua_url,
            "CSI_UA_SHARED_SECRET": SECRET,
            "YOUTUBE_API_KEY": "demo-key",
        }
        self.rt: Runtime = open_runtime(self.config, {k: v for k, v in self.env.items() if v is not None})
        watches.sync([_want("PLone"), _want("PLtwo")], self.now)

    @property
    def now(self) -> float:
        return self.rt.now()

    def call(self, *arguments: str, text: str | None = None) -> Result:
        db.database.close()
        return CliRunner().invoke(cli, list(arguments), env=self.env, input=text)

    def json(self, *arguments: str, code: int = 0) -> Any:
        result = self.call(*arguments, "--json")
        assert result.exit_code == code, result.output + repr(result.exception)
        return json.loads(result.stdout)

    def alive(self) -> None:
        heartbeats.beat("worker", self.now, self.now)

    def event(self, name: str, *, ago: float = 60.0, tier: str = "urgent", to: tuple[str, ...] = ("default",)) -> int:
        """A pending event whose video is `name`."""
        seen_at = self.now - ago
        watch_id = watches.find_id(SOURCE, "PLone")
        seq = len(events.page(10_000)) + 1
        pk = events.add(contract(name), watch_id=watch_id, seq=seq, tier=tier, first_seen_at=seen_at)
        assert pk is not None
        outbox.put(pk, to, tier=tier, watch_id=watch_id, seq=seq, due_at=seen_at + 5)
        return pk

    def batch(self, pks: list[int], destination: str = "default", *, ago: float = 0.0) -> batches.Batch:
        rows = OutboxEntry.select().where(OutboxEntry.event_pk.in_(pks) & (OutboxEntry.destination == destination))
        entries = [outbox.Entry(row.id, row.event_pk, row.watch_id) for row in rows]
        number = batches.create(entries, destination=destination, tier="urgent", now=self.now - ago)
        found = batches.find(number)
        assert found is not None
        return found

    def dead(self, name: str, *, ago: float = 60.0, reason: str = "http 503", **values: Any) -> int:
        """A dead letter that died so many seconds ago; its number."""
        to = values.pop("to", "default")
        batch = self.batch([self.event(name, ago=ago + 10, to=(to,))], to, ago=ago + 5)
        given = {"cause": "transient", "status": 503, "attempts": 3} | values
        dead_letters.add_events(batch, outbox.contents(batch.id), reason=reason, now=self.now - ago, **given)
        batches.run("UPDATE batches SET state = 'dead', settled_at = ? WHERE id = ?", self.now - ago, batch.id)
        return int(DeadLetter.select().order_by(DeadLetter.id.desc()).get().id)


def contract(name: str) -> CreatorSignalEvent:
    return CreatorSignalEvent(
        event_id=f"src:yt:playlist:{name}:PLone:1771761600",
        dedupe_key=f"youtube:video:{name}:PLone",
        source=SOURCE,
        event_type="video_added_to_playlist",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:00:05Z",
        subject={"video_id": name, "title": f"Über {name}", "url": f"https://www.youtube.com/watch?v={name}"},
        routing={"pipeline": "p", "priority": "urgent", "tags": []},
    )


def _want(ref: str) -> watches.WantedWatch:
    return watches.WantedWatch(SOURCE, ref, f"List {ref}", None, (), "urgent", 30.0, "all")


@contextmanager
def desk(home: Path, *given: Any, **blocks: Any) -> Iterator[Desk]:
    built = Desk(home, *given, **blocks)
    with db.connection():
        yield built
