"""`csi sources`: list, add, change, import and export watches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import api_models, clock, logs, runtime
from csi.admin import channel_lists, watch_options, watches
from csi.cli.command import audited, config_and_json_options, config_option, dry_run_option, yes_option
from csi.cli.output import (
    ago,
    confirm,
    echo_fields,
    echo_json,
    echo_lines,
    echo_table,
    is_terminal,
    plain,
    safe,
    stamp,
)  # fmt: skip
from csi.cli.source_options import given_options, option_key, watch_option_group
from csi.errors import SOME_FAILED
from csi.status import read_history, watch_states
from csi.store import db, poll_history, watch_admin

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.store.models import Watch


SHORT = {"youtube_playlist": "playlist", "youtube_channel_rss": "channel"}
HIDDEN = ("filters", "first_poll", "tags", "route_profile")
"""Keys of a watch that `csi sources show` prints among its options."""
_WATCH = click.argument("watch", metavar="WATCH")


@click.group()
def sources() -> None:
    """List, add, pause and remove watches.

    Watches come from the configuration file or are added here; the file is never rewritten. WATCH is a number from the
    list, an id, a name or a URL.
    """


@contextmanager
def watch_session(config_path: Path | None) -> Iterator[Runtime]:
    """The database, created if necessary, with the watches of the configuration."""
    rt = runtime.open_runtime(config_path, log_level="WARNING")
    with db.connection():
        watches.sync_without_worker(rt)
        yield rt


# ── list ────────────────────────────────────────────────────────────────────────────────────────────────


@sources.command("list")
@config_and_json_options
@click.option("--removed", is_flag=True, help="Include removed watches.")
def list_watches(config_path: Path | None, as_json: bool, removed: bool) -> None:
    """List the watches with origin, state, health, poll interval and problems."""
    with watch_session(config_path) as rt:
        rows, now = watch_admin.every(removed=removed), rt.now()
        if as_json:
            echo_json({"watches": api_models.WatchJson.of_rows(rt, rows)})
            return
        notes, enabled, states = watches.notes_of(rows), rt.enabled_sources(), watch_states.states_of(rt, rows)
    cells = []
    for row, shown in zip(rows, states, strict=True):
        last = None if row.last_success_at is None else now - row.last_success_at
        is_on = row.source in enabled
        next_in = ago(row.next_poll_at - now) if row.state == "active" and is_on else "–"
        problems = [row.last_error, notes.get(row.id), None if is_on else "the source is disabled"]
        what = [str(row.id), SHORT.get(row.source, row.source), row.ref, row.name or ""]
        what += [f"{row.origin}, changed" if watch_options.changed_options(row) else row.origin, row.state]
        health = shown if row.state == "active" else "–"
        times = [ago(row.planned_interval or row.interval_seconds), ago(last), next_in]
        cells.append([*what, health, *times, logs.redact("; ".join(text for text in problems if text))])
    echo_table(("NO", "SOURCE", "REF", "NAME", "FROM", "STATE", "HEALTH", "EVERY", "LAST", "NEXT", "PROBLEM"), cells)
    by_origin, by_state = Counter(row.origin for row in rows), Counter(row.state for row in rows)
    origins = f"{by_origin['config']} from the configuration, {by_origin['command']} added by command"
    click.echo(f"{len(rows)} watches: {origins}; {by_state['paused']} paused", err=True)


# ── add ─────────────────────────────────────────────────────────────────────────────────────────────────


@sources.command()
@click.argument("what", metavar="ID|URL|@HANDLE")
@click.option("--name", metavar="TEXT", help="A display name.")
@click.option("--source", metavar="NAME", help="The source that the text belongs to.  [default: found by its form]")
@watch_option_group
@dry_run_option
@config_and_json_options
def add(
    what: str,
    name: str | None,
    source: str | None,
    dry_run: bool,
    config_path: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Watch a channel, a playlist, a feed, or what an installed plugin can watch.

    Takes a channel id (UC…), a channel, playlist or video URL, a playlist id, a feed URL, or an @handle. Handles,
    names and videos are looked up through the API for one unit, or without a key on YouTube's page.
    """
    with watch_session(config_path) as rt:
        added = audited(
            rt,
            "csi sources add",
            lambda: watches.add(rt, what, given_options(name, **given), source=source, dry_run=dry_run),
            lambda done: f"{done.result}: {done.name or done.target.ref}",
            dry_run=dry_run,
        )
    if as_json:
        echo_json(api_models.WatchAdded.of(added, dry_run=dry_run))
        return
    echo_lines(_added_lines(added, dry_run=dry_run))


def _added_lines(added: watches.AddWatchResult, *, dry_run: bool) -> Iterator[str]:
    kind = SHORT.get(added.target.source, added.target.source)
    name = f" ({plain(added.name, 60)})" if added.name else ""
    if added.result == "known":
        yield f"{kind} {added.target.ref}{name}: {added.remark}"
        return
    verb = "would watch" if dry_run else f"number {added.watch_id}: watching"
    yield f"{verb} the {kind} {added.target.ref}{name}"
    if added.target.units:
        yield f"  the lookup cost {added.target.units} API unit"
    if added.remark:
        yield f"  {plain(added.remark)}"
    quote, policy = added.quote, added.first_poll
    if quote.most_units:
        least, most = f"{quote.least_units:,}", f"{quote.most_units:,}"
        span = most if least == most else f"{least} to {most}"
        yield f"  costs {span} API units a day per page of 50; today's plan polls it every {quote.seconds:.0f} s"
    else:
        yield f"  polled every {quote.seconds:g} s from its feed; costs no API units"
    if policy == "all":
        yield "  the first poll emits all current items"
    elif isinstance(policy, dict):
        yield f"  the first poll emits the newest {policy['last']} and marks the rest as seen"
    else:
        yield "  the first poll emits nothing: current items are marked as seen"


# ── one watch ───────────────────────────────────────────────────────────────────────────────────────────


@sources.command()
@_WATCH
@click.option("--reads", is_flag=True, help="List its last 200 reads, the newest first.")
@config_and_json_options
def show(watch: str, reads: bool, config_path: Path | None, as_json: bool) -> None:
    """Show a watch: its options, its state, and how its last reads went."""
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        found, history, now = api_models.WatchDetail.of_watch(rt, row), poll_history.of_watch(row.id), rt.now()
    if as_json:
        echo_json({**found.model_dump(), "reads": api_models.WatchReads.of(reads=history).model_dump()["reads"]})
        return
    plain_fields = found.model_dump()
    options = plain_fields.pop("options")
    echo_fields({key: value for key, value in plain_fields.items() if key not in HIDDEN}, 24)
    for key in watch_options.KEYS:
        value = watch_options.value_text(options.get(key))
        click.echo(f"{f'option {key}':<32} {plain(value)}")
    click.echo(f"{'last reads':<24} {read_history.read_summary(history).words}")
    if reads:
        cells = [
            [stamp(one.at), ago(now - one.at), one.result.replace("_", " "), f"{one.seconds:.2f} s",
             str(one.new_items), plain(one.error or "")]
            for one in reversed(history)
        ]  # fmt: skip
        echo_table(("TIME", "AGO", "RESULT", "TOOK", "NEW", "ERROR"), cells)


@sources.command("set")
@_WATCH
@click.option("--name", metavar="TEXT", help="A display name.")
@watch_option_group
@click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="OPTION",
    help="Take the source's default again: --default interval; repeatable.",
)
@click.option("--from-file", is_flag=True, help="Make all options those of the configuration file again.")
@click.option(
    "--revision", metavar="TEXT", help="Refuse if the watch was changed since `csi sources show` showed this."
)
@dry_run_option
@config_and_json_options
def set_options(
    watch: str,
    name: str | None,
    defaults: tuple[str, ...],
    from_file: bool,
    revision: str | None,
    dry_run: bool,
    config_path: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Change options of a watch; options that are not given stay as they are.

    Of a watch of the configuration, the changed options apply instead of the file's, also after a restart; the file is
    not rewritten, and its other options go on to apply.
    """
    wanted: dict[str, Any] = {key: value for key, value in given_options(name, **given).items() if value is not None}
    wanted |= {option_key(text): None for text in defaults}
    if bool(wanted) == from_file:
        raise click.UsageError("give at least one option to change, such as --interval 5m, or only --from-file")
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        if isinstance(wanted.get("title"), dict):  # `--title-match` alone keeps the stored `--title-not`
            patterns = {key: value for key, value in wanted["title"].items() if value is not None}
            wanted["title"] = {**(watch_options.options_of(rt, row).get("title") or {}), **patterns}
        done = audited(
            rt,
            f"csi sources set {row.id}",
            lambda: watch_options.change(rt, row, wanted, revision=revision, from_file=from_file, dry_run=dry_run),
            lambda done: "; ".join(one.words for one in done) or "nothing was different",
            dry_run=dry_run,
        )
        after = watch_options.revision_of(rt, watch_admin.find(row.source, row.ref) or row)
    if as_json:
        echo_json(api_models.WatchOptionsChanged.of(id=row.id, dry_run=dry_run, changes=done, revision=after))
        return
    words = "; ".join(one.words for one in done)
    verb = "would change" if dry_run else "changed"
    click.echo(f"{_title(row)}: {verb} {plain(words)}" if done else f"{_title(row)} has these options; nothing changed")


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


@sources.command()
@_WATCH
@dry_run_option
@config_option
def pause(watch: str, dry_run: bool, config_path: Path | None) -> None:
    """Stop polling a watch until it is resumed; the pause survives restarts and configuration changes."""
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        changed = audited(
            rt,
            f"csi sources pause {row.id}",
            lambda: watches.pause(rt, row, dry_run=dry_run),
            lambda changed: "paused" if changed else "nothing changed",
            dry_run=dry_run,
        )
        waiting = watch_admin.waiting_items(row.id)
    click.echo(_done(row, "paused", changed, dry_run=dry_run))
    if waiting and changed:
        click.echo(f"  {waiting} items that it found earlier are still delivered")


@sources.command()
@_WATCH
@dry_run_option
@config_option
def resume(watch: str, dry_run: bool, config_path: Path | None) -> None:
    """Resume a paused watch: it is polled at once, and continues from its last state."""
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        changed = audited(
            rt,
            f"csi sources resume {row.id}",
            lambda: watches.resume(rt, row, dry_run=dry_run),
            lambda changed: "resumed" if changed else "nothing changed",
            dry_run=dry_run,
        )
    click.echo(_done(row, "resumed", changed, dry_run=dry_run))


@sources.command()
@_WATCH
@yes_option
@dry_run_option
@config_option
def remove(watch: str, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Remove a watch that was added by command."""
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        watches.remove(rt, row, dry_run=True)
        if not dry_run:
            confirm(f"Stop watching {_title(row)}?", yes=yes)
            audited(rt, f"csi sources remove {row.id}", lambda: watches.remove(rt, row), lambda _: "removed")
    click.echo(_done(row, "removed", True, dry_run=dry_run))


@sources.command()
@_WATCH
@click.option("--emit", type=click.Choice(["all", "none"]), help="What the next poll emits of the current items.")
@yes_option
@dry_run_option
@config_option
def reset(watch: str, emit: str | None, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Delete the baseline of a watch, so that its next poll is a first poll.

    `--emit all` emits every current item that never became an event, `--emit none` marks all of them as seen. Delivered
    events are never delivered again.
    """
    if emit is None:
        if not is_terminal():
            raise click.UsageError("stdin is not a terminal: pass --emit all or --emit none.")
        emit = click.prompt("What should the next poll emit", type=click.Choice(["all", "none"]), default="none")
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        if not dry_run:
            confirm(f"Delete the baseline of {_title(row)}, and emit {emit} of the current items?", yes=yes)
        audited(
            rt,
            f"csi sources reset {row.id}",
            lambda: watches.reset(rt, row, "all" if emit == "all" else "none", dry_run=dry_run),
            lambda _: f"the next poll emits {emit} of the current items",
            dry_run=dry_run,
        )
    click.echo(_done(row, f"reset; the next poll emits {emit} of the current items", True, dry_run=dry_run))


@sources.command()
@_WATCH
@dry_run_option
@config_and_json_options
def poll(watch: str, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Poll a watch now, in this process; the worker delivers new items."""
    with watch_session(config_path) as rt:
        row = watches.find_watch(rt, watch)
        if dry_run:
            click.echo(f"would poll {_title(row)} now")
            return
        found = audited(
            rt,
            f"csi sources poll {row.id}",
            lambda: watches.poll_now(rt, row),
            lambda found: found.error or f"{found.new_items} new",
        )
    if as_json:
        echo_json(api_models.PollResult.of(found))
    elif found.is_busy:
        click.echo(f"{_title(row)} was not polled: another process polls it, or its host is paused")
    elif found.error:
        click.echo(f"{_title(row)} could not be polled: {safe(found.error)}")
    elif found.waits_until is not None:
        at = clock.iso(found.waits_until)
        click.echo(f"{_title(row)} is polled by the worker at {at}: its host allows no request before (net.hosts)")
    else:
        cost = f" ({found.units} API units)" if found.units else ""
        click.echo(f"{_title(row)} was polled: {found.new_items} new{cost}")
    if found.error or found.is_busy:
        sys.exit(1)


def _done(row: Watch, word: str, changed: bool, *, dry_run: bool) -> str:
    if not changed:
        return f"{_title(row)} is {row.state}; nothing changed"
    return f"{_title(row)}: {'would be ' if dry_run else ''}{word}"


def _title(row: Watch) -> str:
    name = f" ({plain(row.name, 60)})" if row.name else ""
    return f"{SHORT.get(row.source, row.source)} {plain(row.ref, 80)}{name}"


# ── lists ───────────────────────────────────────────────────────────────────────────────────────────────


@sources.command("import")
@click.argument("file", type=click.File("rb"))
@watch_option_group
@dry_run_option
@config_and_json_options
def import_file(file: Any, dry_run: bool, config_path: Path | None, as_json: bool, **given: Any) -> None:
    """Add every channel of FILE (- for standard input).

    FILE is OPML, Google Takeout's subscriptions.csv in any language, or a list with one channel, playlist or video
    per line; # begins a comment. Exit code 5 when a line is invalid.
    """
    content = file.read(channel_lists.MAX_BYTES + 1)
    with watch_session(config_path) as rt:
        lines = audited(
            rt,
            "csi sources import",
            lambda: watches.import_list(rt, content, given_options(**given), dry_run=dry_run),
            lambda lines: ", ".join(f"{count} {word}" for word, count in Counter(x.result for x in lines).items()),
            dry_run=dry_run,
        )
    counted = Counter(line.result for line in lines)
    if as_json:
        echo_json(api_models.ImportReport.of_lines(lines, dry_run=dry_run))
    else:
        for line in lines:
            name = f" ({plain(line.name, 60)})" if line.name else ""
            why = f": {plain(line.error)}" if line.error else ""
            click.echo(f"line {line.line}: {line.result} {plain(line.ref or line.text, 80)}{name}{why}")
        would = "would be " if dry_run else ""
        click.echo(f"{counted['added']} {would}added, {counted['known']} known, {counted['invalid']} invalid")
    if counted["invalid"]:
        sys.exit(SOME_FAILED)


@sources.command("export")
@click.option(
    "--output", "-o", type=click.File("w", encoding="utf-8"), default="-", help="Output file; default: stdout."
)
@config_option
def export_file(output: Any, config_path: Path | None) -> None:
    """Write every watch as OPML, for feed readers and for `csi sources import`, which reads its options, too."""
    with watch_session(config_path) as rt:
        output.write(watches.export_list(rt, partial(watch_options.options_of, rt)))
