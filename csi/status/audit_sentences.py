"""The audit log in words: what an operator or an agent did, with a link to it, and how it ended."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from csi.store import watches
from csi.store.catalog import channels
from csi.store.queries import audit_rows
from csi.store.queries.audit_rows import AuditRecord

Outcome = Literal["done", "failed", "not finished"]
VIA = {"api": "admin API", "dashboard": "dashboard", "cli": "command line", "mcp": "agent"}

_VERBS = {
    "pause": "paused", "resume": "resumed", "reset": "reset", "remove": "removed", "poll": "polled", "set": "changed",
    "track": "switched on the statistics of", "untrack": "switched off the statistics of", "test": "tested",
    "sample": "sent a sample event to", "rotate": "rotated the secret of", "backfill": "fetched all videos of",
    "priority": "set the priority of", "retry": "retried", "cancel": "cancelled", "replay": "replayed",
    "discard": "discarded", "add": "added", "enqueue": "enqueued", "prune": "deleted old", "ack": "acknowledged",
    "acknowledge": "acknowledged", "resend": "sent again", "import": "imported", "accept": "accepted",
    "mute": "muted", "unmute": "unmuted", "run": "ran", "restore": "restored",
}  # fmt: skip
_THINGS = {
    "sources": "watch", "channels": "channel", "destinations": "destination", "delivery": "destination",
    "jobs": "job", "dlq": "dead letter", "dead-letters": "dead letter", "events": "event", "problems": "incident",
    "inbound": "sender",
}  # fmt: skip
_PAGES = {
    "watch": "/sources", "channel": "/channels", "destination": "/destinations", "job": "/jobs",
    "dead letter": "/dead-letters", "event": "/events", "sender": "/inbound",
}  # fmt: skip
_WHOLE = {
    "POST /sources": "added a watch", "POST /sources/bulk": "changed several watches",
    "POST /sources/import": "imported a list of watches", "POST /channels": "tracked a channel",
    "POST /destinations": "added a destination", "POST /events/resend": "sent events again",
    "POST /dead-letters/replay": "replayed dead letters", "POST /dead-letters/discard": "discarded dead letters",
    "POST /dlq/replay": "replayed dead letters", "POST /dlq/discard": "discarded dead letters",
    "POST /dlq/prune": "deleted old dead letters", "POST /prune": "deleted old rows",
    "POST /config/accept": "accepted the removal of watches", "POST /notifications/test": "sent a test notification",
    "POST /notifications/mute": "muted notifications", "POST /notifications/unmute": "ended a mute",
    "POST /notify/test": "sent a test notification", "POST /jobs": "enqueued a job",
    "csi notify mute": "muted notifications", "csi notify unmute": "ended a mute", "csi prune": "deleted old rows",
    "csi config accept": "accepted the removal of watches", "csi sources import": "imported a list of watches",
    "csi events resend": "sent events again", "csi dlq replay": "replayed dead letters",
    "csi dlq discard": "discarded dead letters", "csi dlq prune": "deleted old dead letters",
    "csi problems ack": "acknowledged incidents", "csi sources add": "added a watch",
    "csi channels add": "tracked a channel", "csi destinations add": "added a destination",
    "csi jobs enqueue": "enqueued a job",
}  # fmt: skip
_HTTP = re.compile(r"(GET|POST|PATCH|PUT|DELETE) (?:/admin)?/([a-z-]+)/([^/]+)(?:/([a-z-]+))?")
_CLI = re.compile(r"csi ([a-z-]+) ([a-z-]+) (\S+)")


@dataclass(frozen=True)
class AuditSentence:
    """One row in words: "paused the watch", the name of the watch, its page."""

    record: AuditRecord
    actor: str
    verb: str
    thing: str | None
    link: str | None
    outcome: Outcome
    result: str | None

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def text(self) -> str:
        return f"{self.verb} {self.thing}" if self.thing else self.verb


def sentences(rows: Iterable[AuditRecord]) -> list[AuditSentence]:
    found = [(row, _parsed(row.action)) for row in rows]
    refs = {ref for _, (_, kind, ref) in found if kind == "watch" and ref}
    rows_of_watches = [watches.find(int(ref)) for ref in refs if ref.isdigit() and len(ref) < 19]
    names = {str(watch.id): watch.name or watch.ref for watch in rows_of_watches if watch is not None}
    titles = channels.titles({ref for _, (_, kind, ref) in found if kind == "channel" and ref})
    return [_sentence(row, *parsed, names | titles) for row, parsed in found]


def page(limit: int, before: int | None = None, *, via: str | None = None) -> list[AuditSentence]:
    """Newest first; `before` is the id of the last row of the previous page."""
    return sentences(audit_rows.page(limit, before, via=via))


def _parsed(action: str) -> tuple[str, str | None, str | None]:
    """What was done, to which kind of thing, and to which one."""
    plain = action.replace(" /admin/", " /", 1)
    if plain in _WHOLE:
        return _WHOLE[plain], None, None
    if match := _HTTP.fullmatch(action):
        method, group, ref, act = match.groups()
        act = act or {"DELETE": "remove", "GET": ""}.get(method, "set")
    elif match := _CLI.fullmatch(action):
        group, act, ref = match.groups()
    else:
        return _WHOLE.get(" ".join(action.split(" ")[:3]), action), None, None
    kind, verb = _THINGS.get(group), _VERBS.get(act)
    if kind is None or verb is None:
        return action, None, None
    return f"{verb} the {kind}", kind, ref


def _sentence(
    row: AuditRecord, verb: str, kind: str | None, ref: str | None, names: Mapping[str, str]
) -> AuditSentence:  # fmt: skip
    outcome: Outcome = "not finished"
    if row.outcome is not None:
        outcome = "done" if row.outcome == "done" else "failed"
    elif row.status is not None:
        # Rows of earlier releases have only a status: that of HTTP, or the exit code of a command.
        is_good = row.status == 0 if row.via == "cli" else row.status < 400
        outcome = "done" if is_good else "failed"
    link = f"{_PAGES[kind]}/{quote(ref, safe='%')}" if kind in _PAGES and ref else None
    who = {"cli": row.client or "", "mcp": f"an agent ({row.role})"}.get(row.via, row.role)
    place = f" from {row.client}" if row.client and row.via not in ("cli", "mcp") else ""
    return AuditSentence(
        record=row,
        actor=f"{who}{place}, {VIA.get(row.via, row.via)}",
        verb=verb,
        thing=names.get(ref, ref) if ref else None,
        link=link,
        outcome=outcome,
        result=row.result or (row.detail if row.via == "cli" else None),
    )
