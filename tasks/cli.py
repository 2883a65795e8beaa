"""`csi tasks`: queued and running tasks, the rows they serve, and the backlog. Rows are the truth; tasks wake them."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import api_models, logs
from csi.cli import dlq
from csi.cli.command import config_and_json_options, dry_run_option, installed, yes_option
from csi.cli.output import ago, confirm, echo_json, echo_lines, echo_table, iso, plain, plural
from csi.dlq import dead_letters
from csi.status import backlog, destinations, worker
from csi.store import batches, db, watches
from csi.store.queries import backlog_rows, timeline_rows
from tasks import queue_inspection

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.status.backlog import BacklogGroup
    from tasks.queue_inspection import Queue, Queued

STATES = ("running", "pending", "scheduled")


@dataclass(frozen=True)
class Work:
    """A running or queued task, the row that it serves, and why it waits."""

    state: str
    id: str | None
    task: str
    key: str
    row: str | None
    why: str
    due_at: float | None = None
    holder: str | None = None


@click.group()
def tasks() -> None:
    """Show queued and running tasks, the backlog and dead letters.

    A task only wakes a row: deleting every task loses nothing. What was given up is a dead letter.
    """


tasks.add_command(dlq.list_dead_letters, "dlq")


@tasks.command("list")
@config_and_json_options
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
def list_tasks(config_path: Path | None, as_json: bool, state: str | None, limit: int) -> None:
    """List running, pending and scheduled tasks with the rows they serve, and the backlog with reasons."""
    with installed(config_path) as rt:
        queue = queue_inspection.inspect(rt.settings)
        found = [one for one in works(rt, queue) if state in (None, one.state)]
        rest, now = backlog.backlog(rt), rt.now()
    if as_json:
        shown = [_work_dict(one) for one in found[:limit]]
        report = {"tasks": shown, "total": len(found), "unreadable": queue.unreadable, "has_key": queue.has_key}
        echo_json(report | api_models.Backlog.of(backlog=rest).model_dump())
        return
    rows = []
    for one in found[:limit]:
        due = "" if one.due_at is None else f"in {ago(one.due_at - now)}" if one.due_at > now else "now"
        words = logs.redact(one.row or ""), logs.redact(one.why)
        rows.append([one.state, f"{one.task}({one.key})", (one.id or "")[:8], due, *words])
    echo_table(("STATE", "TASK", "ID", "DUE", "ROW", "WHY"), rows)
    more = f"; the first {limit:,} are shown" if len(found) > limit else ""
    click.echo(f"{plural(len(found), 'task')}{more}", err=True)
    _show_rest(queue, rest, now)


@tasks.command()
@config_and_json_options
@click.argument("task_id", metavar="ID")
def show(config_path: Path | None, as_json: bool, task_id: str) -> None:
    """Show one queued task by its id, or the beginning of it."""
    with installed(config_path) as rt:
        found = [
            one for one in works(rt, queue_inspection.inspect(rt.settings)) if one.id and one.id.startswith(task_id)
        ]
    if len(found) != 1:
        many = f"{len(found)} tasks begin with {plain(task_id, 60)!r}; write more of the id"
        none = f"no task with the id {plain(task_id, 60)!r} is queued; it may have run: csi tasks list"
        click.echo(many if found else none, err=True)
        sys.exit(1)
    if as_json:
        echo_json(_work_dict(found[0]))
        return
    for name, value in _work_dict(found[0]).items():
        click.echo(f"{name:<7}{'–' if value is None else plain(value)}")


@tasks.command()
@config_and_json_options
def stats(config_path: Path | None, as_json: bool) -> None:
    """Count tasks by kind and state, and show the backlog."""
    with installed(config_path) as rt:
        queue = queue_inspection.inspect(rt.settings)
        found, rest, now = works(rt, queue), backlog.backlog(rt), rt.now()
        is_alive = worker.worker_status(rt).is_alive
    counted = Counter((one.task, one.state) for one in found)
    names = [*queue_inspection.STEPS, *sorted({one.task for one in found} - set(queue_inspection.STEPS))]
    numbers = {name: {state: counted[name, state] for state in STATES} for name in names}
    if as_json:
        totals = {state: sum(one.state == state for one in found) for state in STATES}
        listed = [{"task": name, **found} for name, found in numbers.items()]
        report = {"worker_alive": is_alive, "totals": totals, "unreadable": queue.unreadable}
        report |= {"has_key": queue.has_key, "tasks": listed}
        echo_json(report | api_models.Backlog.of(backlog=rest).model_dump())
        return
    rows = [[name, *(f"{count:,}" for count in numbers[name].values())] for name in names]
    echo_table(("TASK", "RUNNING", "PENDING", "SCHEDULED"), rows)
    _show_rest(queue, rest, now)


@tasks.command()
@config_and_json_options
@dry_run_option
@yes_option
def purge(config_path: Path | None, as_json: bool, dry_run: bool, yes: bool) -> None:
    """Empty the queue. Nothing is lost: the worker enqueues due rows again within seconds."""
    with installed(config_path) as rt:
        found = queue_inspection.inspect(rt.settings)
        number = len(found.messages) + found.unreadable
        if number and not dry_run:
            confirm(f"Remove {plural(number, 'queued task')}?", yes=yes)
            queue_inspection.empty(rt.settings)
    if as_json:
        echo_json({"tasks": number, "purged": 0 if dry_run else number, "dry_run": dry_run})
    else:
        click.echo(f"{plural(number, 'task')} {'would be' if dry_run else 'were'} removed")


def works(rt: Runtime, queue: Queue) -> list[Work]:
    """Running first, then pending, then scheduled."""
    found, now = [], rt.now()
    for leased in backlog_rows.running():
        task = next(name for name, step in queue_inspection.STEPS.items() if step == leased.step)
        if leased.lease_until < now:
            why = "the lease expired: its process died or is stuck; the worker claims the row again"
        else:
            why = f"leased by process {leased.holder} for at most {ago(leased.lease_until - now)} more"
        found.append(Work("running", None, task, str(leased.id), leased.what, why, None, leased.holder))
    for one in queue.messages:
        why = backlog.with_worker(_reason(rt, one), worker.worker_status(rt)).timed(rt.now())
        found.append(Work(one.state, one.id, one.task, one.key, _row_words(one), why, one.due_at))
    return found


def _reason(rt: Runtime, one: Queued) -> backlog.Reason:
    """A batch waits for the reason that its row has; every other task for its time or for a thread."""
    batch = backlog_rows.unsettled_batch(int(one.key)) if one.step == "deliver" and one.key.isdecimal() else None
    if batch is not None:
        destination = destinations.destination_state_of(rt, batch.destination)
        return backlog.why_batch_waits(destination, batch, rt.now(), delivery_is_on=rt.settings.features.delivery)
    if one.due_at is not None and one.due_at > rt.now():
        return backlog.Reason("scheduled", one.due_at)
    return backlog.Reason("waiting for a free thread")


def _row_words(one: Queued) -> str | None:
    """The row in words; None: a periodic task, which serves no row."""
    number = int(one.key) if one.key.isdecimal() else 0
    match one.step:
        case "poll":
            watch = watches.find(number)
            return f"{watch.source} {watch.ref} ({watch.state})" if watch else "the watch was removed"
        case "ingest":
            return backlog_rows.item_key(number) or "the item is an event by now"
        case "ahead":
            return "items of floods before their turn, while nothing else waits"
        case "deliver":
            batch = batches.find(number)
            return f"{batch.batch_id} to {batch.destination}, {batch.size} events ({batch.state})" if batch else "gone"
        case "flush":
            name, _, lane = one.key.rpartition("/")
            pending = next((found.pending for found in timeline_rows.lanes(name) if found.name == lane), 0)
            return f"{pending} pending events in {one.key}"
        case "probe":
            return f"destination {one.key}"
    return None


def _show_rest(queue: Queue, rest: list[BacklogGroup], now: float) -> None:
    """The messages that were not opened, and the backlog."""
    if queue.unreadable:
        click.echo(queue_inspection.unreadable_words(queue), err=True)
    click.echo(f"\n{'waiting' if rest else 'nothing is waiting'}")
    echo_lines(f"  {plain(one.words(now))}" for one in rest)
    with db.reading():
        letters = dead_letters.open_count()
    if letters:
        click.echo(f"{plural(letters, 'open dead letter')}: csi tasks dlq")


def _work_dict(one: Work) -> dict[str, Any]:
    row = logs.redact(one.row) if one.row else None
    return asdict(one) | {"row": row, "why": logs.redact(one.why), "due_at": iso(one.due_at)}
