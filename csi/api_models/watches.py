"""Watches as JSON, and what adding, changing and polling them did."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AliasPath, BeforeValidator, Field

from csi.admin import watch_options, watches
from csi.api_models.base import ApiModel, JsonColumn, Redacted, RedactedOrNone, Time, TimeOrNone
from csi.status import watch_states
from csi.store import watch_admin
from csi.store.poll_history import PastRead

if TYPE_CHECKING:
    from csi.admin.watches import ImportLineResult, PollNowResult
    from csi.runtime import Runtime
    from csi.store.held_removals import LostWatch
    from csi.store.models import Watch

_Parsed = BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value)


class RemovedWatch(ApiModel):
    """A watch that the configuration no longer has."""

    id: int
    source: str
    ref: str
    name: str | None


class RemovalReport(ApiModel):
    """Watches that were held although the configuration no longer has them, and that are removed now."""

    removed: int
    dry_run: bool
    watches: list[RemovedWatch]

    @classmethod
    def of_watches(cls, held: "Sequence[LostWatch]", *, dry_run: bool) -> Self:
        return cls.of(removed=0 if dry_run else len(held), dry_run=dry_run, watches=held)


class WatchJson(ApiModel):
    """One configured feed, playlist or channel that is polled."""

    id: int
    source: str
    ref: str
    name: str | None
    origin: Literal["config", "command"]
    state: Literal["active", "paused", "removed"]
    health: str
    """As csi.status.watch_states has it: `unknown` while no worker is alive, `new` before the first poll."""
    via: str
    route_profile: str | None
    tier: str
    errors: int
    source_enabled: bool
    url: str | None
    icon_url: str | None = None
    """The address of its icon, as its source names it; CSI does not download it."""
    interval_seconds: float
    planned_interval_seconds: float
    tags: Annotated[list[str], _Parsed] = Field(validation_alias="tags_json")
    filters: JsonColumn = Field(validation_alias="filters_json")
    first_poll: Annotated[Any, _Parsed]
    pages: int
    first_read_at: TimeOrNone
    last_poll_at: TimeOrNone
    last_success_at: TimeOrNone
    last_new_at: TimeOrNone
    next_poll_at: TimeOrNone
    health_since: TimeOrNone
    error_kind: str | None
    last_error: RedactedOrNone
    note: RedactedOrNone

    @classmethod
    def of_rows(cls, rt: "Runtime", rows: "Sequence[Watch]", **more: object) -> list[Self]:
        enabled = [name for name, settings in rt.settings.sources.items() if settings.enabled]
        notes = watches.notes_of(rows)
        states = watch_states.states_of(rt, rows)
        return [
            cls.of(
                row,
                health=state if row.state == "active" else row.health,
                source_enabled=row.source in enabled,
                url=watches.page_url(row),
                planned_interval_seconds=row.planned_interval or row.interval_seconds,
                note=notes.get(row.id),
                **more,
            )
            for row, state in zip(rows, states, strict=True)
        ]


class WatchDetail(WatchJson):
    """A watch, the options that were set for it, and the number of its items that are not events yet."""

    waiting_items: int
    options: dict[str, Any] = Field(description="Set for this watch; for other keys the source's settings apply")
    changed_options: list[str] = Field(description="Options that an operator changed; others are those of the file")
    revision: str = Field(description="Of the options; give it with a change that must not replace another one")

    @classmethod
    def of_watch(cls, rt: "Runtime", row: "Watch") -> Self:
        options = watch_options.options_of(rt, row)
        waiting, revision = watch_admin.waiting_items(row.id), watch_options.revision_of(rt, row)
        changed = sorted(watch_options.changed_options(row))
        return cls.of_rows(
            rt, [row], waiting_items=waiting, options=options, changed_options=changed, revision=revision
        )[0]


class WatchOptionChange(ApiModel):
    """One option of a watch that a change replaced. null: the source's default."""

    key: str
    before: Any
    after: Any


class WatchOptionsChanged(ApiModel):
    """What a change of options did, and the revision after it."""

    id: int
    dry_run: bool
    changes: list[WatchOptionChange]
    revision: str


class WatchRead(ApiModel, row=PastRead, without=("at", "error")):
    """One read of a watch."""

    at: Time
    error: RedactedOrNone


class WatchReads(ApiModel):
    """The last reads of a watch, the oldest first."""

    reads: list[WatchRead]


class WatchList(ApiModel):
    """A page of watches."""

    watches: list[WatchJson]
    next: int | None


class UnitRange(ApiModel):
    """The API units that a watch can cost a day."""

    least: int = Field(validation_alias="least_units")
    most: int = Field(validation_alias="most_units")


class WatchAdded(ApiModel):
    """What adding a watch did."""

    result: Literal["added", "known"]
    dry_run: bool
    id: int | None = Field(validation_alias="watch_id")
    source: str = Field(validation_alias=AliasPath("target", "source"))
    ref: str = Field(validation_alias=AliasPath("target", "ref"))
    name: str | None
    first_poll: Any
    lookup_units: int = Field(validation_alias=AliasPath("target", "units"))
    interval_seconds: Annotated[float, BeforeValidator(lambda seconds: round(seconds, 1))] = Field(
        validation_alias=AliasPath("quote", "seconds")
    )
    units_per_day: UnitRange = Field(validation_alias="quote")
    remark: str | None


class ImportLine(ApiModel, row=watches.ImportLineResult):
    """One entry of an imported list."""


class ImportReport(ApiModel):
    """What importing a list did."""

    added: int
    known: int
    invalid: int
    dry_run: bool
    lines: list[ImportLine]

    @classmethod
    def of_lines(cls, lines: "Sequence[ImportLineResult]", *, dry_run: bool) -> Self:
        counted = dict.fromkeys(("added", "known", "invalid"), 0) | Counter(line.result for line in lines)
        return cls.of(counted, dry_run=dry_run, lines=lines)


class WatchChanged(ApiModel):
    """The watch after a change."""

    id: int
    ref: str
    changed: bool
    dry_run: bool
    state: str


class WatchPaused(WatchChanged):
    """The watch after a pause, and the number of its items that are not events yet."""

    waiting_items: int


class PollResult(ApiModel):
    """What polling one watch found."""

    watch: str = Field(validation_alias="ref")
    new_items: int
    busy: bool = Field(validation_alias="is_busy")
    error: RedactedOrNone
    units: int
    waits_until: TimeOrNone = Field(description="The worker reads it then: its host allows no request before")


class PollError(ApiModel):
    """A watch that could not be polled."""

    watch: str = Field(validation_alias="ref")
    error: Redacted


class SourcePollReport(ApiModel):
    """What polling every watch of a source found."""

    adapter: str
    watches: int
    polled: int
    busy: int
    new_items: int
    errors: list[PollError]

    @classmethod
    def of_results(cls, source: str, found: "Sequence[PollNowResult]") -> Self:
        failed, busy = [one for one in found if one.error], sum(one.is_busy for one in found)
        return cls.of(
            adapter=source,
            watches=len(found),
            polled=len(found) - busy - len(failed),
            busy=busy,
            new_items=sum(one.new_items for one in found),
            errors=failed,
        )
