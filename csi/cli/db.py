"""`csi db`: migrate, inspect, back up, repair and copy the database. `csi prune`: delete rows past their retention."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, clock, errors, net, runtime
from csi.admin import backup_restore, backups, copy_to_postgres, database_repair
from csi.cli.command import (
    audited,
    config_and_json_options,
    config_option,
    dry_run_option,
    installed,
    json_option,
    yes_option,
)
from csi.cli.output import confirm, echo_json, echo_table, plural, progress
from csi.config import settings
from csi.config.secrets import hide_password
from csi.store import damage, db
from csi.worker import retention

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.worker.retention import Pruned


_BACKUP_NAME = re.compile(r"csi-\d{8}T\d{6}Z\.db")


if_any_option = click.option("--if-any", is_flag=True, help="Do nothing when there is no database yet; for timers.")


@click.group("db")
def db_group() -> None:
    """Migrate, inspect, back up, repair and copy the database."""


@db_group.command()
@config_option
def migrate(config_path: Path | None) -> None:
    """Bring the schema up to date. Worker and sidecar also do this when they start."""
    _open(config_path)
    applied = db.migrate()
    click.echo(f"applied {', '.join(applied)}" if applied else "the schema is up to date")


@db_group.command()
@config_and_json_options
def status(config_path: Path | None, as_json: bool) -> None:
    """Show the database's location, its applied and pending migrations, damage, and its last good backup."""
    where = _open(config_path)
    applied, pending = db.applied_migrations(), db.pending_migrations()
    last = None if pending else backups.last_good()
    found = None if db.is_postgres() else damage.find_damage(Path(where))
    if as_json:
        shown = last and dataclasses.asdict(last) | {"at": clock.iso(last.at)}
        facts = {"database": where, "applied": applied, "pending": pending, "damage": found, "last_backup": shown}
        click.echo(json.dumps(facts))
        return
    click.echo(f"database  {where}")
    click.echo(f"applied   {', '.join(applied) or 'nothing'}")
    click.echo(f"pending   {', '.join(pending) or 'nothing'}")
    if not db.is_postgres():
        click.echo(f"damage    {found or 'none found'}")
    if last is not None:
        click.echo(f"backup    {clock.iso(last.at)}, {last.bytes:,} bytes in {last.seconds:.1f} s: {last.target}")


@db_group.command()
@config_option
@click.option("--keep", type=click.IntRange(1), help="With a directory: delete all but the newest N backups there.")
@if_any_option
@click.argument("target", type=click.Path(path_type=Path))
def backup(config_path: Path | None, keep: int | None, if_any: bool, target: Path) -> None:
    """Write a consistent, verified copy to TARGET while the worker runs (SQLite only).

    In a directory the file name contains the time. Existing files are never overwritten. Time, size, duration and
    result are recorded: a failure, and a last backup that is too old, are problems that operators are notified of.
    """
    if keep is not None and not target.is_dir():
        raise click.UsageError(f"--keep needs a directory; {target} is not one.")
    if if_any and _is_missing(config_path):
        return
    _open(config_path)
    name = f"csi-{re.sub('[-:]', '', clock.iso(clock.now()))}.db"
    copy = target / name if target.is_dir() else target
    done = backups.make(copy)
    click.echo(f"wrote {copy} ({done.bytes:,} bytes), checked")
    if keep:
        # Only files that this command named: the directory may hold other databases.
        for old in sorted(path for path in target.iterdir() if _BACKUP_NAME.fullmatch(path.name))[:-keep]:
            old.unlink()
            click.echo(f"removed {old}")


@db_group.command("backup-failed")
@config_option
@click.argument("error", default="the backup ended without a result")
def backup_failed(config_path: Path | None, error: str) -> None:
    """Record that a backup failed, for OnFailure= of the unit csi-backup.service and for scripts of your own.

    Nothing is recorded when the failed backup has recorded itself.
    """
    _open(config_path)
    recorded = backups.note_interrupted(error)
    click.echo("recorded" if recorded else "the failure is recorded already")


@db_group.command("restore")
@config_option
@dry_run_option
@yes_option
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def restore(config_path: Path | None, file: Path, dry_run: bool, yes: bool) -> None:
    """Put a backup in the place of the database (SQLite only). The worker must be stopped; stop the sidecar, too.

    The backup is checked first and brought up to date. The present database is kept under another name.
    """
    wanted = runtime.load_settings(config_path)
    if not dry_run:
        confirm(f"Replace {hide_password(wanted.csi.database_url)} by {file}?", yes=yes)
    done = backup_restore.restore(wanted, file, clock.now(), dry_run=dry_run)
    click.echo(f"{file}: good; {plural(done.events, 'event')}, the last seen at {done.newest or 'no time'}")
    if dry_run:
        click.echo("nothing was changed (--dry-run)", err=True)
        return
    click.echo(f"{wanted.csi.database_url} is restored{f'; the old file is {done.kept}' if done.kept else ''}")
    click.echo("start worker and sidecar; what was published since the backup is sent again", err=True)


@db_group.command("repair")
@config_and_json_options
@dry_run_option
@yes_option
def repair(config_path: Path | None, as_json: bool, dry_run: bool, yes: bool) -> None:
    """Save every row of a damaged database that can be read, and read the sources again for the rest (SQLite only).

    Worker and sidecar must be stopped. The rows go into a new file, which is checked and takes the place of the damaged
    one; that is kept under another name. A database without damage is not changed. A good backup may hold more.
    """
    configured = runtime.load_settings(config_path)
    url = configured.csi.database_url
    if settings.looks_like_postgres(url):
        raise errors.StoreError("this database is PostgreSQL: use its own tools, or restore a dump")
    if not Path(url).exists():
        raise errors.StoreError(f"there is no database at {url}")
    rt = runtime.Runtime(configured, net.Net())
    if not dry_run:
        confirm(f"Repair {url}, if it is damaged?", yes=yes)
    report = database_repair.repair(rt, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({"database": url, "dry_run": dry_run} | dataclasses.asdict(report)))
    elif report.damage is None:
        click.echo("no damage found; nothing was changed")
    else:
        click.echo(f"damage: {report.damage}")
        rows = [
            [it.table, f"{it.rows:,}", "unknown" if it.lost is None else f"{it.lost:,}", ", ".join(it.gaps[:5])]
            for it in report.tables
            if it.rows or it.gaps or it.lost
        ]
        echo_table(("TABLE", "SAVED", "LOST", "UNREADABLE ROWS"), rows)
        if report.kept is None:
            click.echo("nothing was changed (--dry-run)", err=True)
            return
        for what, number in report.consequences:
            click.echo(f"{number:,} {what}")
        click.echo(f"{url} is repaired; the damaged file is {report.kept}. Start worker and sidecar.", err=True)


@db_group.command("copy")
@config_option
@click.option("--to", "target", required=True, metavar="URL", help="An empty database: postgresql://USER@HOST/NAME.")
@click.option("--live", is_flag=True, help="Copy a snapshot while the worker runs; finish with a run without --live.")
@json_option
def copy_all(config_path: Path | None, target: str, live: bool, as_json: bool) -> None:
    """Copy the whole database into PostgreSQL, and compare both sides at the end.

    An interrupted copy continues with the next run: only rows that differ are written. The worker must be stopped, so
    that the copy is complete; --live copies a snapshot before that. Every user of this machine can read command-line
    arguments: pass the password by PGPASSWORD or ~/.pgpass.
    """
    if not settings.looks_like_postgres(target):
        raise click.UsageError("--to: expected postgresql://USER@HOST/NAME.")
    shown = 0
    with progress(100, "copying and comparing") as advance:

        def notice(done: int, total: int) -> None:
            nonlocal shown
            percent = 100 * done // max(total, 1)
            advance(percent - shown)
            shown = percent

        report = copy_to_postgres.copy_database(runtime.load_settings(config_path), target, live=live, notice=notice)
    if as_json:
        facts = {
            "source": report.source,
            "target": hide_password(target),
            "complete": report.complete,
            "mended_texts": report.mended,
        }
        click.echo(json.dumps(facts | {"tables": [dataclasses.asdict(it) for it in report.tables]}))
        return
    rows = [[it.table, f"{it.rows:,}", f"{it.written:,}", f"{it.removed:,}", it.sha256[:16]] for it in report.tables]
    echo_table(("TABLE", "ROWS", "WRITTEN", "REMOVED", "SHA256"), rows)
    if report.mended:
        click.echo(f"{plural(report.mended, 'text')} contained NUL or invalid UTF-8, replaced by U+FFFD", err=True)
    if report.complete:
        click.echo("both sides are equal; set csi.database (CSI_DATABASE_URL) to it and start the worker", err=True)
    else:
        click.echo("the snapshot is copied; stop worker and sidecar, and run again without --live", err=True)


def _open(config_path: Path | None) -> str:
    url = runtime.load_settings(config_path).csi.database_url
    db.open_database(url)
    return hide_password(url)


def _is_missing(config_path: Path | None) -> bool:
    """Whether there is no SQLite database yet, which is then reported."""
    url = runtime.load_settings(config_path).csi.database_url
    missing = not settings.looks_like_postgres(url) and not Path(url).exists()
    if missing:
        click.echo(f"there is no database at {url} yet: nothing to do")
    return missing


@click.command()
@config_and_json_options
@dry_run_option
@yes_option
@if_any_option
def prune(config_path: Path | None, as_json: bool, dry_run: bool, yes: bool, if_any: bool) -> None:
    """Delete events, attempts, closed dead letters and dedupe keys that are older than `retention` allows.

    The worker does this every hour. Pending and in-flight events and open dead letters are kept.
    """
    if if_any and _is_missing(config_path):
        return
    with installed(config_path) as rt:
        plan = retention.survey(rt)
        if dry_run:
            _report(rt, plan, "WOULD GO", as_json=as_json)
            return
        if plan.total:
            confirm(f"Delete {plural(plan.total, 'old row')}?", yes=yes)
        with progress(plan.total, "removing") as notice:
            done = audited(
                rt,
                "csi prune",
                lambda: retention.prune(rt, notice=notice),
                lambda done: f"{plural(done.total, 'row')} deleted",
            )
        _report(rt, done, "REMOVED", as_json=as_json)


def _report(rt: Runtime, report: Pruned, word: str, *, as_json: bool) -> None:
    kept = rt.settings.retention
    days = {"dead_letter": kept.dlq_days, "dedupe_keys": kept.dedupe_days}
    if as_json:
        echo_json(api_models.PruneReport.of(report, dry_run=word != "REMOVED"))
        return
    rows = [[name, f"{days.get(name, kept.events_days)} d", f"{count:,}"] for name, count in report.removed.items()]
    echo_table(("TABLE", "KEPT", word), rows)
    if report.open_dead_letters:
        count = plural(report.open_dead_letters, "open dead letter")
        click.echo(
            f"{count} older than {kept.dlq_days} days are kept until you replay, discard or prune them", err=True
        )
