"""Send events again by command: the same event with the same id, whether it was delivered or died."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from csi.dlq import dead_letters, replay
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.logs import log
from csi.runtime import Runtime
from csi.status.backlog import why_not_soon
from csi.status.destinations import configured_name
from csi.store import events, outbox
from csi.store.db import chunks, writing
from csi.store.models import Event
from csi.store.queries import event_search, timeline_rows
from csi.store.queries.event_search import EventQuery

CHUNK = 100
"""Events in one transaction."""
CONFIRM_ABOVE = 100
"""More events than this are sent again only after a confirmation."""
NEVER_SENT = "it was not sent yet, so there is nothing to send again; name a destination"


MOST_SHOWN = 500


class ResendRefused(CsiError):
    """Nothing is sent again; the text says why."""


@dataclass(frozen=True)
class ResendResult:
    """Whether one event is queued again for one destination; in a dry run, whether it would be."""

    event_id: str
    destination: str
    is_sent: bool
    note: str


@dataclass(frozen=True)
class ResendReport:
    """What is sent again, or would be. Of the results at most 500, those that failed first."""

    dry_run: bool
    events: int
    sent: int
    failed: int
    results: tuple[ResendResult, ...]
    destinations: tuple[str, ...]
    notes: tuple[str, ...]
    """Reasons why what is queued now is not sent soon."""

    @property
    def words(self) -> str:
        if not self.results:
            return "no event matches that a destination wants"
        count = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        if not self.sent:
            return f"none of {count} can be sent again"
        end = "would be sent again" if self.dry_run else "pending again; the worker sends them"
        return f"{count}, {self.sent:,} to {', '.join(self.destinations)}: {end}"


def choose(texts: Sequence[str], query: EventQuery | None = None) -> list[int]:
    """The numbers of these events, or of those that the query selects, oldest first. ResendRefused names the unknown
    ones: a mistyped id must not go unnoticed among others."""
    if query is not None:
        return event_search.ids(query)
    found = {text: event_search.find(clean(text, 600)) for text in texts}
    if unknown := [text[:80] for text, row in found.items() if row is None]:
        raise ResendRefused(f"there is no event {', '.join(map(repr, unknown[:5]))}; `csi events list` shows them")
    return sorted({row.id for row in found.values() if row is not None})


def resend(
    rt: Runtime,
    event_pks: Sequence[int],
    destination: str | None = None,
    *,
    named: bool = True,
    dry_run: bool = False,
    notice: Callable[[int], None] = lambda done: None,
) -> ResendReport:
    """Queue these events again, for this destination or for each that they were sent to. Nothing is sent here.

    The row that remembers it is the entry of the outbox, in the lane `resend`; the maintenance loop finds it, also
    after a crash. A second call finds the entry of the first one, and changes nothing. With `named` an event that
    cannot be sent has a result that says why; events of a query that do not belong to the destination have none.
    """
    if destination is not None:
        configured_name(rt, destination)
    results: list[ResendResult] = []
    for chunk in chunks(event_pks, CHUNK):
        sent_to = timeline_rows.sent_to(chunk)
        with writing():  # one transaction per chunk: an interruption loses no chunk
            for event in events.by_ids(chunk):
                known = sent_to.get(event.id, set())
                names = sorted(known) if destination is None else [destination]
                if not named:
                    names = [name for name in names if name in known or _is_wanted(rt, event, name)]
                elif not names:
                    results.append(ResendResult(event.event_id, "", is_sent=False, note=NEVER_SENT))
                results += [_result(rt, event, name, is_known=name in known, dry_run=dry_run) for name in names]
        notice(len(chunk))
    queued = sum(one.is_sent for one in results)
    if queued and not dry_run:
        log.info("events are sent again by command", events=queued, destination=destination or "")
    sent_again = tuple(sorted({one.destination for one in results if one.is_sent}))
    notes = () if dry_run else tuple(why_not_soon(rt, sent_again))
    shown = tuple(sorted(results, key=lambda one: one.is_sent)[:MOST_SHOWN])
    count = len({one.event_id for one in results})
    return ResendReport(dry_run, count, queued, len(results) - queued, shown, sent_again, notes)


def _result(rt: Runtime, event: Event, name: str, *, is_known: bool, dry_run: bool) -> ResendResult:
    try:
        if name not in rt.destinations:
            raise ResendRefused(f"the destination {name!r} is no longer configured")
        if not is_known and not _is_wanted(rt, event, name):
            raise ResendRefused(f"the filters of {name!r} exclude it, and it was never sent there")
        letters = dead_letters.of_item(event.dedupe_key)
        letter = next((one for one in letters if one.state == "open" and one.destination == name), None)
        if letter is not None and letter.event_id == event.event_id:
            done = [] if dry_run else replay.replay([letter], rt.now(), streaming=rt.streaming_sources())
            if done and not done[0].is_sent:
                raise ResendRefused(done[0].note)
            note = f"dead letter {letter.id} is replayed"
        else:
            is_queued = any(one.destination == name for one in timeline_rows.outbox_of([event.id]))
            if is_queued or not (dry_run or outbox.send_again(event.id, name, rt.now())):
                raise ResendRefused("it is queued for this destination already")
            note = "sent again" if is_known else "sent there for the first time"
    except ResendRefused as error:
        return ResendResult(event.event_id, name, is_sent=False, note=str(error))
    return ResendResult(event.event_id, name, is_sent=True, note=note)


def _is_wanted(rt: Runtime, event: Event, name: str) -> bool:
    if name not in rt.destinations:
        return False
    tags, watch = json.loads(event.routing_json).get("tags") or (), timeline_rows.watch_name(event.watch_id)
    return rt.destinations[name].wanted.accepts(
        event.source, event.event_type, tags, watch=watch.ref if watch is not None else "", tier=event.tier
    )
