"""Both kinds of dead letters in one table: jobs that died here, and events that never left the sender."""

from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from csi import clock
from csi.processing.documents import DeadLetterJobDocument
from csi.processing.ingester_dead_letters import EventLetter, Sender
from csi.processing.runtime import Processing
from csi.processing.store import dead_jobs, signals

MOST = 200
UNPROCESSED = 50


@dataclass(frozen=True)
class Row:
    """One dead letter of either kind. `link` is None where there is no page to go to."""

    kind: Literal["job", "event"]
    name: str
    link: str | None
    state: str
    cause: str
    about: str
    attempts: int
    died_at: float | None
    error: str
    command: str


def both_kinds(rt: Processing, sender: Sender, request: Request) -> dict[str, Any]:
    """The newest first. The sender is asked first: no statement runs while it is waited for."""
    shown = "all" if request.query_params.get("state") == "all" else "open"
    told = sender.letters(shown)
    jobs = dead_jobs.search(status="all" if shown == "all" else None, limit=MOST)
    rows = [_job(letter.doc) for letter in jobs] + [_event(letter, sender.url or "") for letter in told.letters]
    return {
        "shown": shown,
        "rows": sorted(rows, key=lambda row: row.died_at or 0.0, reverse=True),
        "jobs": len(jobs),
        "events": told.total,
        "trouble": told.trouble,
        "more": max(told.total - len(told.letters), 0),
        "ingester": rt.settings.ingester_url,
        "refused": signals.recent(UNPROCESSED, action="unusable") + signals.recent(UNPROCESSED, action="unrouted"),
    }


def _job(doc: DeadLetterJobDocument) -> Row:
    who = f", {doc.assigned_to}" if doc.assigned_to else ""
    return Row(
        kind="job",
        name=doc.job_id,
        link=f"/ui/videos/{doc.video_id}" if doc.video_id else None,
        state=doc.dlq_status,
        cause=doc.failure_type,
        about=f"{doc.priority}, level {doc.escalation_level}{who}",
        attempts=doc.total_attempts,
        died_at=clock.parse(doc.moved_to_dlq_at),
        error=doc.final_error,
        command=f"csi processing dlq {'retry' if doc.can_retry else 'show'} {doc.job_id}",
    )


def _event(letter: EventLetter, url: str) -> Row:
    """The link is made of our own setting and a number: an address that the sender tells is never followed."""
    return Row(
        kind="event",
        name=letter.event_id or f"letter {letter.id}",
        link=f"{url}/dead-letters/{letter.id}",
        state=letter.state,
        cause=letter.cause,
        about=" → ".join(part for part in (letter.source, letter.destination) if part),
        attempts=letter.retry_count,
        died_at=letter.died_at,
        error=letter.error,
        command=f"csi dlq show {letter.id}",
    )
