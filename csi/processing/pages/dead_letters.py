"""The facts of the dead letters page: dead jobs of processing and dead letters of the ingester in one table."""

from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from csi import clock
from csi.processing.collection_models import DeadLetterJobDocument
from csi.processing.ingester_dead_letters import EventDeadLetter, IngesterClient
from csi.processing.runtime import Processing
from csi.processing.store import dead_jobs, received_events

MAX_JOBS = 200
MAX_SIGNALS = 50


@dataclass(frozen=True)
class DeadLetterRow:
    """One dead letter of either kind. `link` is None when it has no page."""

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


def dead_letter_facts(rt: Processing, ingester: IngesterClient, request: Request) -> dict[str, Any]:
    """Newest first. The ingester is called before the first statement, so that no read transaction waits for it."""
    state = "all" if request.query_params.get("state") == "all" else "open"
    events = ingester.letters(state)
    jobs = dead_jobs.search(status="all" if state == "all" else None, limit=MAX_JOBS)
    rows = [_job_row(job.doc) for job in jobs] + [_event_row(letter, ingester.url or "") for letter in events.letters]
    return {
        "shown": state,
        "rows": sorted(rows, key=lambda row: row.died_at or 0.0, reverse=True),
        "jobs": len(jobs),
        "events": events.total,
        "problem": events.problem,
        "more": max(events.total - len(events.letters), 0),
        "ingester": rt.settings.ingester_url,
        "refused": received_events.recent(MAX_SIGNALS, action="unusable")
        + received_events.recent(MAX_SIGNALS, action="unrouted"),
    }


def _job_row(doc: DeadLetterJobDocument) -> DeadLetterRow:
    return DeadLetterRow(
        kind="job",
        name=doc.job_id,
        link=f"/ui/videos/{doc.video_id}" if doc.video_id else None,
        state=doc.dlq_status,
        cause=doc.failure_type,
        about=", ".join(filter(None, (doc.priority, f"level {doc.escalation_level}", doc.assigned_to))),
        attempts=doc.total_attempts,
        died_at=clock.parse(doc.moved_to_dlq_at),
        error=doc.final_error,
        command=f"csi processing dlq {'retry' if doc.can_retry else 'show'} {doc.job_id}",
    )


def _event_row(letter: EventDeadLetter, url: str) -> DeadLetterRow:
    return DeadLetterRow(
        kind="event",
        name=letter.event_id or f"letter {letter.id}",
        # Built from our own setting and a number: a URL that the ingester sends is never linked.
        link=f"{url}/dead-letters/{letter.id}",
        state=letter.state,
        cause=letter.cause,
        about=" → ".join(part for part in (letter.source, letter.destination) if part),
        attempts=letter.retry_count,
        died_at=letter.died_at,
        error=letter.error,
        command=f"csi dlq show {letter.id}",
    )
