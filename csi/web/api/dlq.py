"""`/admin/dlq`: dead letters, as `csi dlq` shows and changes them."""

from typing import Literal

from pydantic import Field

from csi import api_models
from csi.admin.replay_by_command import obstacles, replay_all
from csi.api_models.dead_letters import DeadLetterCause, DeadLetterState
from csi.config.durations import parse_duration
from csi.dlq import dead_letters, discard_and_prune, search
from csi.dlq.dead_letters import OLD_CAUSES, StoredDeadLetter
from csi.dlq.search import DeadLetterFilter
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.store.queries import timeline_rows
from csi.web.operation_definition import MAX_LIMIT, Ago, BeforeId, Limit, OperationList, RequestModel, page_of
from csi.web.responses import HttpProblem

MOST_IDS = 10_000

OPERATIONS = OperationList()


class DeadLetterConditions(RequestModel):
    """Which dead letters; all conditions must hold."""

    since: Ago | None = Field(None, ge=0, description="Given up within this time: 1h, 2d")
    source: str | None = Field(None, max_length=100, description="Only of this source")
    destination: str | None = Field(None, max_length=100, description="Only for this destination")
    error_like: str | None = Field(None, max_length=500, description="Only with this text in the error, in any case")
    cause: DeadLetterCause | Literal["endpoint"] | None = Field(
        None, description="Only of this cause; `endpoint` is the deprecated word for `destination`"
    )

    def condition(self, now: float, states: tuple[str, ...] = ("open",)) -> DeadLetterFilter:
        return DeadLetterFilter(
            states=states,
            since=None if self.since is None else now - self.since,
            source=self.source,
            destination=self.destination,
            error_like=self.error_like,
            cause=OLD_CAUSES.get(self.cause or "", self.cause),
        )


class DeadLetterQuery(DeadLetterConditions):
    """Which dead letters, and how they are listed."""

    limit: Limit = 50
    before: BeforeId = None
    state: DeadLetterState | Literal["all"] = Field("open", description="Only those in this state")
    group_by: Literal["error", "cause", "source", "destination"] | None = Field(None, description="Count by this")


class ReplayRequest(DeadLetterConditions):
    """Which dead letters: `ids`, conditions, or `all`."""

    ids: tuple[int, ...] = Field((), max_length=MOST_IDS, description="Ids of dead letters")
    all: bool = Field(False, description="Every open dead letter")
    dry_run: bool = Field(False, description="List what would be sent, and change nothing")


class DiscardRequest(RequestModel):
    """Which dead letters to discard."""

    ids: tuple[int, ...] = Field(min_length=1, max_length=MOST_IDS, description="Ids of dead letters")
    reason: str = Field("by the admin API", max_length=200, description="Stored with the dead letter")
    dry_run: bool = Field(False, description="List what would be discarded, and change nothing")
    confirm: bool = Field(False, description="Must be true unless dry_run is")


class DeadLetterPruneRequest(RequestModel):
    """Which dead letters to delete."""

    older_than: str = Field(max_length=40, description="Those that did not change for this time: 90d")
    dry_run: bool = Field(False, description="Count what would be deleted, and change nothing")
    confirm: bool = Field(False, description="Must be true unless dry_run is")


@OPERATIONS.add("GET", "/dlq", "listDeadLetters", "Dead letters, newest first, or counted by a property")
def list_dead_letters(rt: Runtime, query: DeadLetterQuery) -> api_models.DeadLetterPage | api_models.DeadLetterGroups:
    wish = query.condition(rt.now(), dead_letters.STATES if query.state == "all" else (query.state,))
    if query.group_by:
        groups = search.groups(wish, query.group_by)
        return api_models.DeadLetterGroups.of(
            group_by=query.group_by, total=sum(one.count for one in groups), groups=groups
        )
    shown, following = page_of(search.page(wish, query.limit + 1, query.before), query.limit)
    return api_models.DeadLetterPage.of(total=search.count(wish), dead_letters=shown, next=following)


@OPERATIONS.add(
    "GET", "/dlq/{id}", "getDeadLetter", "One dead letter: its error, every attempt with its response, its payload",
    refusals={404: "No dead letter with this id"},
)  # fmt: skip
def show_dead_letter(rt: Runtime, number: int) -> api_models.DeadLetterDetail:
    found = dead_letters.find(number)
    if found is None:
        raise HttpProblem(404, "there is no dead letter with this id")
    return api_models.DeadLetterDetail.of(found, attempts=attempts_of(found))


def attempts_of(letter: StoredDeadLetter) -> list[timeline_rows.AttemptRow]:
    return timeline_rows.attempts_for(letter.event_id, letter.destination) if letter.kind == "event" else []


@OPERATIONS.add("POST", "/dlq/replay", "replayDeadLetters", "Send dead letters again: the same events, the same ids")
def replay(rt: Runtime, body: ReplayRequest) -> api_models.ReplayReport | api_models.DeadLetterPlan:
    conditions = any(getattr(body, name) is not None for name in DeadLetterConditions.model_fields)
    if not (body.ids or body.all or conditions):
        raise HttpProblem(400, "give ids, since, error_like, source, destination, cause or all")
    if body.ids and (body.all or conditions):
        raise HttpProblem(400, "ids names the dead letters; remove the other conditions")
    chosen = list(dict.fromkeys(body.ids)) or search.ids(body.condition(rt.now()))
    if body.dry_run:
        still_open = search.ids(DeadLetterFilter(ids=tuple(chosen))) if body.ids else chosen
        rows = dead_letters.by_ids(still_open[:MAX_LIMIT])
        return api_models.DeadLetterPlan.of(chosen=len(still_open), dead_letters=rows)
    outcomes = replay_all(rt, chosen)
    sent = sum(one.is_sent for one in outcomes)
    return api_models.ReplayReport.of(
        chosen=len(outcomes),
        sent=sent,
        failed=len(outcomes) - sent,
        dead_letters=outcomes,
        notes=obstacles(rt, outcomes),
    )


@OPERATIONS.add("POST", "/dlq/discard", "discardDeadLetters", "Close dead letters for good: they are never delivered")
def discard(rt: Runtime, body: DiscardRequest) -> api_models.DiscardReport | api_models.DeadLetterPlan:
    found = dead_letters.by_ids(body.ids)
    if body.dry_run:
        still_open = [letter for letter in found if letter.state == "open"]
        return api_models.DeadLetterPlan.of(chosen=len(still_open), dead_letters=still_open)
    _refuse_unconfirmed(body)
    days, result = rt.settings.retention.dedupe_days, clean(body.reason, 200)
    closed = discard_and_prune.discard(found, rt.now(), result=result, key_days=days)
    states = {letter.id: f"it is {letter.state}" for letter in dead_letters.by_ids(body.ids)}
    rest = [number for number in body.ids if number not in closed]
    failed = {str(number): states.get(number, "there is no dead letter with this id") for number in rest}
    return api_models.DiscardReport.of(discarded=closed, failed=failed)


@OPERATIONS.add("POST", "/dlq/prune", "pruneDeadLetters", "Delete old dead letters, also open ones")
def prune(rt: Runtime, body: DeadLetterPruneRequest) -> api_models.DeadLetterPrune:
    try:
        before = rt.now() - parse_duration(body.older_than)
    except ValueError as error:
        raise HttpProblem(400, "older_than: must be a number with a unit, like 12h or 90d") from error
    old, deleted = discard_and_prune.count_old(before), 0
    if not body.dry_run:
        _refuse_unconfirmed(body)
        while chunk := discard_and_prune.prune(before, rt.now(), key_days=rt.settings.retention.dedupe_days):
            deleted += chunk
    return api_models.DeadLetterPrune(old=old.count, open=old.open, deleted=deleted, dry_run=body.dry_run)


def _refuse_unconfirmed(body: DiscardRequest | DeadLetterPruneRequest) -> None:
    if not body.confirm:
        raise HttpProblem(400, "this cannot be undone: send confirm: true, or dry_run: true for a preview")
