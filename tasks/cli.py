"""`csi tasks`: what is queued, what runs, and what waits for what. Rows are the truth; tasks only wake them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import api_models, logs
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import confirm, echo_json, iso, plural
from csi.cli.terminal import ago, plain, table
from csi.status import backlog as reasons
from csi.store import batches, watches
from csi.store.queries import backlog, timeline
from tasks import queue_inspection

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.status.backlog import Waiting
    from csi.store.queries.backlog import Held
    from tasks.queue_inspection import Queue, Queued

STATES = ("running", "pending", "scheduled")


@dataclass(frozen=True)
class Work:
    """One thing that runs or is queued, the row that it serves, and why it is where it is."""

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
    """Show what is queued, what runs, and what waits for what.

    A task is a wake-up for a row and nothing more: deleting every one of them loses nothing.
    """


@tasks.command("list")
@config_option
@json_option
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
def list_tasks(config_path: Path | None, as_json: bool, state: str | None, limit: int) -> None:
    """List running, pending and scheduled tasks with the rows they serve, and what else waits, and why."""
    with installed(config_path) as rt:
        looked = queue_inspection.look(rt.settings)
        found = [one for one in works(rt, looked) if state in (None, one.state)]
        rest, now = reasons.waiting(rt), rt.now()
    if as_json:
        shown = [_work_dict(one) for one in found[:limit]]
        report = {"tasks": shown, "total": len(found), "unreadable": looked.unreadable, "has_key": looked.has_key}
        echo_json(report | api_models.Backlog.of(backlog=rest).model_dump())
        return
    for line in table(("STATE", "TASK", "ID", "DUE", "ROW", "WHY"), [_row(one, now) for one in found[:limit]]):
        click.echo(line)
    more = f"; the first {limit:,} are shown" if len(found) > limit else ""
    click.echo(f"{plural(len(found), 'task')}{more}", err=True)
    _show_unreadable(looked)
    _show_waiting(rest, now)


@tasks.command()
@config_option
@json_option
@click.argument("task_id", metavar="ID")
def show(config_path: Path | None, as_json: bool, task_id: str) -> None:
    """Show one queued task by its id, or the beginning of it."""
    with installed(config_path) as rt:
        found = [one for one in works(rt, queue_inspection.look(rt.settings)) if one.id and one.id.startswith(task_id)]
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
@config_option
@json_option
def stats(config_path: Path | None, as_json: bool) -> None:
    """Count tasks by kind and state, and what waits."""
    with installed(config_path) as rt:
        looked = queue_inspection.look(rt.settings)
        found, rest, now = works(rt, looked), reasons.waiting(rt), rt.now()
        gone = reasons.worker_gone(rt)
    counted = Counter((one.task, one.state) for one in found)
    names = [*queue_inspection.STEPS, *sorted({one.task for one in found} - set(queue_inspection.STEPS))]
    rows = {name: {state: counted[name, state] for state in STATES} for name in names}
    if as_json:
        totals = {state: sum(one.state == state for one in found) for state in STATES}
        listed = [{"task": name, **numbers} for name, numbers in rows.items()]
        report = {"worker_alive": gone is None, "totals": totals, "unreadable": looked.unreadable}
        report |= {"has_key": looked.has_key, "tasks": listed}
        echo_json(report | api_models.Backlog.of(backlog=rest).model_dump())
        return
    for line in table(("TASK", "RUNNING", "PENDING", "SCHEDULED"), [_counts(name, rows[name]) for name in names]):
        click.echo(line)
    _show_unreadable(looked)
    _show_waiting(rest, now)


@tasks.command()
@config_option
@json_option
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(config_path: Path | None, as_json: bool, dry_run: bool, yes: bool) -> None:
    """Empty the queue. Nothing is lost: rows that are due are woken again within seconds."""
    with installed(config_path) as rt:
        found = queue_inspection.look(rt.settings)
        number = len(found.messages) + found.unreadable
        if number and not dry_run:
            confirm(f"Throw away {plural(number, 'queued task')}?", yes=yes)
            queue_inspection.empty(rt.settings)
    if as_json:
        echo_json({"tasks": number, "purged": 0 if dry_run else number, "dry_run": dry_run})
    else:
        click.echo(f"{plural(number, 'task')} {'would be' if dry_run else 'were'} thrown away")


def works(rt: Runtime, looked: Queue) -> list[Work]:
    """Running first, then what is taken next, then what waits for its time."""
    now, gone = rt.now(), reasons.worker_gone(rt)
    running = [_running(held, now) for held in backlog.running()]
    return [*running, *(_queued(one, now, gone) for one in looked.messages)]


def _running(held: Held, now: float) -> Work:
    task = next(name for name, step in queue_inspection.STEPS.items() if step == held.step)
    if held.lease_until < now:
        why = "its holder is gone or stuck: the lease ran out, and the worker takes it up again"
    else:
        why = f"process {held.holder} holds it for at most {ago(held.lease_until - now)} more"
    return Work("running", None, task, str(held.id), held.what, why, None, held.holder)


def _queued(one: Queued, now: float, gone: str | None) -> Work:
    if one.due_at is not None and one.due_at > now:
        why = "waits for its time" if one.step != "deliver" else "waits for the next attempt"
    else:
        why = "the next free thread takes it"
    return Work(one.state, one.id, one.task, one.key, _row_words(one), f"{gone}; {why}" if gone else why, one.due_at)


def _row_words(one: Queued) -> str | None:
    """What the row is; None: a periodic task, which serves no row of its own."""
    number = int(one.key) if one.key.isdecimal() else 0
    match one.step:
        case "poll":
            watch = watches.find(number)
            return f"{watch.source} {watch.ref} ({watch.state})" if watch else "the watch is gone"
        case "ingest":
            key = backlog.item_key(number)
            return key or "the item is an event already"
        case "deliver":
            batch = batches.find(number)
            return f"{batch.batch_id} to {batch.destination}, {batch.size} events ({batch.state})" if batch else "gone"
        case "flush":
            name, _, lane = one.key.rpartition("/")
            pending = next((found.pending for found in timeline.lanes(name) if found.name == lane), 0)
            return f"{pending} pending events in {one.key}"
        case "probe":
            return f"the receiver {one.key}"
    return None


def _row(one: Work, now: float) -> list[str]:
    due = "" if one.due_at is None else f"in {ago(one.due_at - now)}" if one.due_at > now else "now"
    name = f"{one.task}({one.key})"
    return [one.state, name, (one.id or "")[:8], due, logs.redact(one.row or ""), logs.redact(one.why)]


def _counts(name: str, numbers: dict[str, int]) -> list[str]:
    return [name, *(f"{numbers[state]:,}" for state in STATES)]


def _show_unreadable(looked: Queue) -> None:
    if looked.unreadable:
        click.echo(f"{plural(looked.unreadable, 'message')} {queue_inspection.unreadable_words(looked)}", err=True)


def _show_waiting(rest: list[Waiting], now: float) -> None:
    lines: Iterator[str] = (f"  {plain(reasons.words(one, now))}" for one in rest)
    click.echo("\n".join(["", "waiting" if rest else "nothing waits", *lines]))


def _work_dict(one: Work) -> dict[str, Any]:
    return {
        "state": one.state,
        "id": one.id,
        "task": one.task,
        "key": one.key,
        "row": logs.redact(one.row) if one.row else None,
        "why": logs.redact(one.why),
        "due_at": iso(one.due_at),
        "holder": one.holder,
    }
