"""`/admin/dlq`: dead letters. What `csi dlq` can do."""

from typing import Any, Literal

from pydantic import Field

from csi.admin import replay_by_command
from csi.config.durations import parse_duration
from csi.dlq import dead_letters as letters
from csi.dlq import discard_and_prune, search
from csi.dlq.dead_letters import StoredDeadLetter
from csi.dlq.search import DeadLetterFilter
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.store.queries import timeline
from csi.web import json_views
from csi.web.api.operation import BIGGEST, MAX_LIMIT, Ago, Call, Given, Operation, Refusal, Whole
from csi.web.api.schema import STAMP, listed, maybe, named, shape, word

MOST_IDS = 10_000


class Filters(Given):
    """Which letters; several conditions all hold."""

    since: Ago | None = Field(None, ge=0, description="Died within this time: 1h, 2d")
    source: str | None = Field(None, max_length=100, description="Of this source only")
    destination: str | None = Field(None, max_length=100, description="On its way to this destination only")
    error_like: str | None = Field(None, max_length=500, description="With this in its error, in any case")
    cause: Literal["transient", "endpoint", "event", "malformed", "crash"] | None = Field(
        None, description="Of this cause only"
    )


class Listing(Filters):
    """Which letters, and how they are shown."""

    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Rows on a page")
    before: Whole | None = Field(None, ge=1, le=BIGGEST, description="The `next` of the page before")
    state: Literal["open", "replaying", "replayed", "discarded", "all"] = Field("open", description="In this state")
    group_by: Literal["error", "cause", "source", "destination"] | None = Field(None, description="Count by this")


class Replay(Filters):
    """Say which: `ids`, conditions, or `all`."""

    ids: tuple[int, ...] = Field((), max_length=MOST_IDS, description="Numbers of letters")
    all: bool = Field(False, description="Every open letter")
    dry_run: bool = Field(False, description="Say which would be sent, and change nothing")


class Discard(Given):
    """What to give up."""

    ids: tuple[int, ...] = Field(min_length=1, max_length=MOST_IDS, description="Numbers of letters")
    reason: str = Field("by the admin API", max_length=200, description="Kept with the letter")
    dry_run: bool = Field(False, description="Say which would be discarded, and change nothing")
    confirm: bool = Field(False, description="Must be true unless dry_run is")


class Prune(Given):
    """What to delete for ever."""

    older_than: str = Field(max_length=40, description="Nothing happened to them for so long: 90d")
    dry_run: bool = Field(False, description="Say how many would be deleted, and change nothing")
    confirm: bool = Field(False, description="Must be true unless dry_run is")


def list_letters(rt: Runtime, call: Call) -> dict[str, Any]:
    asked: Listing = call.query
    states = letters.STATES if asked.state == "all" else (asked.state,)
    wish = wish_of(asked, rt.now(), states)
    if asked.group_by:
        groups = search.groups(wish, asked.group_by)
        total = sum(group.count for group in groups)
        return {"group_by": asked.group_by, "total": total, "groups": [json_views.group(one) for one in groups]}
    rows = search.page(wish, asked.limit + 1, asked.before)
    shown = rows[: asked.limit]
    following = shown[-1].id if len(rows) > asked.limit else None
    return {"total": search.count(wish), "letters": [json_views.letter(one) for one in shown], "next": following}


def show_letter(rt: Runtime, call: Call) -> dict[str, Any]:
    letter = letters.find(call.number)
    if letter is None:
        raise Refusal(404, "there is no dead letter of that number")
    attempts = attempts_of(letter)
    return json_views.letter(letter) | {
        "attempts": [json_views.attempt(one) for one in attempts],
        "payload": letter.payload,
    }


def attempts_of(letter: StoredDeadLetter) -> list[timeline.Request]:
    return timeline.requests_for(letter.event_id, letter.destination) if letter.kind == "event" else []


def wish_of(filters: Filters, now: float, states: tuple[str, ...] = ("open",)) -> DeadLetterFilter:
    return DeadLetterFilter(
        states=states,
        since=None if filters.since is None else now - filters.since,
        source=filters.source,
        destination=filters.destination,
        error_like=filters.error_like,
        cause=filters.cause,
    )


def replay(rt: Runtime, call: Call) -> dict[str, Any]:
    asked: Replay = call.body
    chosen = _chosen(asked, rt.now())
    if asked.dry_run:
        still_open = search.ids(DeadLetterFilter(ids=tuple(chosen))) if asked.ids else chosen
        return _plan(letters.by_ids(still_open[:MAX_LIMIT]), len(still_open))
    outcomes = replay_by_command.replay_all(rt, chosen)
    sent = [one.letter_id for one in outcomes if one.is_sent]
    names = [letter.destination for letter in letters.by_ids(sent) if letter.destination]
    return {
        "chosen": len(outcomes),
        "sent": len(sent),
        "failed": len(outcomes) - len(sent),
        "letters": [json_views.outcome(one) for one in outcomes],
        "notes": [json_views.hidden(note) for note in replay_by_command.obstacles(rt, names)] if sent else [],
    }


def _chosen(asked: Replay, now: float) -> list[int]:
    conditions = any(getattr(asked, name) is not None for name in Filters.model_fields)
    if not (asked.ids or asked.all or conditions):
        raise Refusal(400, "which ones? Give ids, since, error_like, source, destination, cause or all")
    if asked.ids and (asked.all or conditions):
        raise Refusal(400, "ids names the letters already; leave the other conditions out")
    return list(dict.fromkeys(asked.ids)) or search.ids(wish_of(asked, now))


def _plan(rows: list[StoredDeadLetter], count: int) -> dict[str, Any]:
    return {"dry_run": True, "chosen": count, "letters": [json_views.letter(one) for one in rows]}


def discard(rt: Runtime, call: Call) -> dict[str, Any]:
    asked: Discard = call.body
    found = letters.by_ids(asked.ids)
    if asked.dry_run:
        still_open = [letter for letter in found if letter.state == "open"]
        return _plan(still_open, len(still_open))
    _refuse_unconfirmed(asked)
    days, result = rt.settings.retention.dedupe_days, clean(asked.reason, 200)
    closed = discard_and_prune.discard(found, rt.now(), result=result, key_days=days)
    states = {letter.id: f"it is {letter.state}" for letter in letters.by_ids(asked.ids)}
    rest = [number for number in asked.ids if number not in closed]
    return {
        "discarded": closed,
        "failed": {str(number): states.get(number, "there is no such dead letter") for number in rest},
    }


def prune(rt: Runtime, call: Call) -> dict[str, Any]:
    asked: Prune = call.body
    try:
        before = rt.now() - parse_duration(asked.older_than)
    except ValueError as error:
        raise Refusal(400, "older_than: write a number with a unit, as in 12h or 90d") from error
    old = discard_and_prune.count_old(before)
    if not asked.dry_run:
        _refuse_unconfirmed(asked)
    return {"old": old.count, "open": old.open, "deleted": _prune(rt, before, asked.dry_run), "dry_run": asked.dry_run}


def _prune(rt: Runtime, before: float, dry_run: bool) -> int:
    days, gone = rt.settings.retention.dedupe_days, 0
    while not dry_run and (now_gone := discard_and_prune.prune(before, rt.now(), key_days=days)):
        gone += now_gone
    return gone


def _refuse_unconfirmed(asked: Discard | Prune) -> None:
    if not asked.confirm:
        raise Refusal(400, "what this does cannot be undone: say confirm: true, or dry_run: true to look first")


LETTER = shape(
    id=int,
    kind=word("event", "item"),
    event_id=str,
    source=str,
    destination=maybe(str),
    cause=word("transient", "endpoint", "event", "malformed", "crash"),
    error=str,
    status=maybe(int),
    retry_count=int,
    rounds=int,
    state=word(*letters.STATES),
    first_seen_at=maybe(STAMP),
    died_at=STAMP,
    closed_at=maybe(STAMP),
    result=maybe(str),
)
_ATTEMPT = shape(
    started_at=STAMP,
    finished_at=maybe(STAMP),
    attempt=int,
    request_id=str,
    form=str,
    outcome=str,
    status=maybe(int),
    reason=maybe(str),
    answer=maybe(str),
)
_GROUP = shape(key=str, count=int, causes=listed(str), first_died_at=STAMP, last_died_at=STAMP, example=int)
SCHEMAS = {"Letter": LETTER}
_LIST = shape(total=int, letters=listed(named("Letter")), next=maybe(int))
_GROUPS = shape(group_by=str, total=int, groups=listed(_GROUP))
_PLAN = shape(dry_run=bool, chosen=int, letters=listed(named("Letter")))
_REPLAYED = shape(
    chosen=int,
    sent=int,
    failed=int,
    letters=listed(shape(id=int, event_id=maybe(str), sent=bool, note=str)),
    notes=listed(str),
)

OPERATIONS = [
    Operation(
        "GET",
        "/dlq",
        "listLetters",
        "Dead letters, newest first, or counted by what they have in common",
        {"anyOf": [_LIST, _GROUPS]},
        list_letters,
        query=Listing,
    ),
    Operation(
        "GET",
        "/dlq/{id}",
        "getLetter",
        "One dead letter whole: why it died, every attempt with its answer, its payload",
        {"allOf": [named("Letter"), shape(attempts=listed(_ATTEMPT), payload=dict)]},
        show_letter,
        refusals={404: "No dead letter of that number"},
    ),
    Operation(
        "POST",
        "/dlq/replay",
        "replayLetters",
        "Send dead letters again: the same event, the same id",
        {"anyOf": [_REPLAYED, _PLAN]},
        replay,
        body=Replay,
    ),
    Operation(
        "POST",
        "/dlq/discard",
        "discardLetters",
        "Close letters for good: what they hold is never delivered",
        {"anyOf": [shape(discarded=listed(int), failed=dict), _PLAN]},
        discard,
        body=Discard,
    ),
    Operation(
        "POST",
        "/dlq/prune",
        "pruneLetters",
        "Delete old letters for ever, open ones too",
        shape(old=int, open=int, deleted=int, dry_run=bool),
        prune,
        body=Prune,
    ),
]
