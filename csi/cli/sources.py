"""`csi sources`: what is watched, and how it is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import api_models, logs, runtime
from csi.admin import channel_lists, watches
from csi.cli.options import config_option, json_option
from csi.cli.output import SOME_FAILED, confirm, echo_json, is_terminal
from csi.cli.terminal import ago, plain, table
from csi.store import db, watch_admin

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.store.models import Watch

SHORT = {"youtube_playlist": "playlist", "youtube_channel_rss": "channel"}
_WATCH = click.argument("watch", metavar="WATCH")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def sources() -> None:
    """List, add, pause and remove what is watched.

    Watches of the configuration file and watches added here live together; the file is never rewritten. WATCH is
    a number from the list, an id, a name or a URL.
    """


@contextmanager
def _runtime(config_path: Path | None) -> Iterator[Runtime]:
    rt = runtime.open_runtime(config_path)
    with db.connection():
        watches.sync_without_worker(rt)
        yield rt


# ── look ────────────────────────────────────────────────────────────────────────────────────────────────


@sources.command("list")
@config_option
@json_option
@click.option("--removed", is_flag=True, help="Also those that were removed.")
def list_watches(config_path: Path | None, as_json: bool, removed: bool) -> None:
    """Show every watch: where it comes from, how it is, how often it is read, what is wrong."""
    with _runtime(config_path) as rt:
        rows, now = watch_admin.every(removed=removed), rt.now()
        if as_json:
            echo_json({"watches": api_models.WatchJson.of_rows(rt, rows)})
            return
        notes = watches.notes_of(rows)
        head = ("NO", "SOURCE", "REF", "NAME", "FROM", "STATE", "HEALTH", "EVERY", "LAST", "NEXT", "TROUBLE")
        for line in table(head, [_row(rt, row, notes.get(row.id), now) for row in rows]):
            click.echo(line)
        click.echo(_counts(rows), err=True)


def _row(rt: Runtime, row: Watch, note: str | None, now: float) -> list[str]:
    last = None if row.last_success_at is None else now - row.last_success_at
    is_on = row.source in rt.enabled_sources()
    next_in = ago(row.next_poll_at - now) if row.state == "active" and is_on else "–"
    trouble = [row.last_error, note, None if is_on else "the source is switched off"]
    return [
        str(row.id),
        SHORT.get(row.source, row.source),
        row.ref,
        row.name or "",
        row.origin,
        row.state,
        row.health if row.state == "active" else "–",
        ago(row.planned_interval or row.interval_seconds),
        ago(last),
        next_in,
        logs.redact("; ".join(text for text in trouble if text)),
    ]


def _counts(rows: list[Watch]) -> str:
    by_origin, by_state = Counter(row.origin for row in rows), Counter(row.state for row in rows)
    origins = f"{by_origin['config']} from the configuration, {by_origin['command']} added by command"
    return f"{len(rows)} watches: {origins}; {by_state['paused']} paused"


# ── add ─────────────────────────────────────────────────────────────────────────────────────────────────


def _wishes(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a new watch, the same for `add` and `import`."""
    options = [
        click.option("--route-profile", metavar="NAME", help="A key of route_profiles."),
        click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Added to the profile's tags; repeatable."),
        click.option("--interval", metavar="TIME", help="Time between two reads: 90, 5m.  [default: the source's]"),
        click.option("--first-poll", metavar="POLICY", help="What the first read emits: mark_seen, all or last:N."),
        click.option("--include", metavar="KINDS", help="Kinds wanted, by commas: video,short,live,upcoming."),
        click.option("--title-match", metavar="REGEX", help="Only items whose title matches."),
        click.option("--title-not", metavar="REGEX", help="No items whose title matches."),
        click.option("--min-duration", metavar="TIME", help="Shortest item wanted, where its length is known."),
        click.option("--max-duration", metavar="TIME", help="Longest item wanted, where its length is known."),
        click.option("--via", type=click.Choice(["feed", "api", "both"]), help="How a channel is read."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _wish(name: str | None = None, **given: Any) -> watches.WatchOptions:
    title = {"match": given["title_match"], "not": given["title_not"]}
    return watches.WatchOptions(
        {
            "name": name,
            "route_profile": given["route_profile"],
            "tags": tuple(given["tags"]) or None,
            "poll_interval_seconds": given["interval"],
            "first_poll": _first_poll(given["first_poll"]),
            "include": [word.strip() for word in given["include"].split(",")] if given["include"] else None,
            "title": title if any(title.values()) else None,
            "min_duration_seconds": given["min_duration"],
            "max_duration_seconds": given["max_duration"],
            "via": given["via"],
        }
    )


def _first_poll(text: str | None) -> Any:
    word, _, number = (text or "").partition(":")
    return {"last": int(number)} if word == "last" and number.isdecimal() else text


@sources.command()
@click.argument("what", metavar="ID|URL|@HANDLE")
@click.option("--name", metavar="TEXT", help="A name for people.")
@_wishes
@_DRY_RUN
@config_option
@json_option
def add(what: str, name: str | None, dry_run: bool, config_path: Path | None, as_json: bool, **given: Any) -> None:
    """Watch a channel or playlist.

    Takes a channel id (UC…), a channel, playlist or video URL, a playlist id, a feed URL, or an @handle. Handles,
    names and videos are looked up through the API, which takes a key and costs one unit.
    """
    with _runtime(config_path) as rt:
        added = watches.add(rt, what, _wish(name, **given), dry_run=dry_run)
    if as_json:
        echo_json(api_models.WatchAdded.of(added, dry_run=dry_run))
        return
    for line in _added_words(added, dry_run=dry_run):
        click.echo(line)


def _added_words(added: watches.AddWatchResult, *, dry_run: bool) -> Iterator[str]:
    kind, name = SHORT[added.target.source], f" ({plain(added.name, 60)})" if added.name else ""
    if added.result == "known":
        yield f"{kind} {added.target.ref}{name}: {added.remark}"
        return
    verb = "would watch" if dry_run else f"number {added.watch_id}: watching"
    yield f"{verb} the {kind} {added.target.ref}{name}"
    if added.target.units:
        yield f"  looked up for {added.target.units} API unit"
    if added.remark:
        yield f"  {plain(added.remark)}"
    yield f"  {_cost_words(added.quote)}"
    yield f"  {_first_words(added.first_poll)}"


def _cost_words(quote: Any) -> str:
    if not quote.most_units:
        return f"read every {quote.seconds:g} s from its feed; costs no API units"
    least, most = f"{quote.least_units:,}", f"{quote.most_units:,}"
    span = most if least == most else f"{least} to {most}"
    return f"costs {span} API units a day for each page of 50; today's plan reads it every {quote.seconds:.0f} s"


def _first_words(policy: Any) -> str:
    if policy == "all":
        return "the first read emits everything that is there"
    if isinstance(policy, dict):
        return f"the first read emits the newest {policy['last']} and marks the rest as seen"
    return "the first read emits nothing: what is there now counts as seen"


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


@sources.command()
@_WATCH
@_DRY_RUN
@config_option
def pause(watch: str, dry_run: bool, config_path: Path | None) -> None:
    """Stop reading a watch until it is resumed, over restarts and changes of the configuration."""
    with _runtime(config_path) as rt:
        row = watches.find_watch(rt, watch)
        changed = watches.pause(rt, row, dry_run=dry_run)
        waiting = watch_admin.waiting_items(row.id)
    click.echo(_done(row, "paused", changed, dry_run=dry_run))
    if waiting and changed:
        click.echo(f"  {waiting} items that it found before are still delivered")


@sources.command()
@_WATCH
@_DRY_RUN
@config_option
def resume(watch: str, dry_run: bool, config_path: Path | None) -> None:
    """Read a paused watch again, at once; it continues where it was."""
    with _runtime(config_path) as rt:
        row = watches.find_watch(rt, watch)
        click.echo(_done(row, "resumed", watches.resume(rt, row, dry_run=dry_run), dry_run=dry_run))


@sources.command()
@_WATCH
@_YES
@_DRY_RUN
@config_option
def remove(watch: str, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Stop watching something that was added by command."""
    with _runtime(config_path) as rt:
        row = watches.find_watch(rt, watch)
        watches.remove(rt, row, dry_run=True)
        if not dry_run:
            confirm(f"Stop watching {_title(row)}?", yes=yes)
            watches.remove(rt, row)
    click.echo(_done(row, "removed", True, dry_run=dry_run))


@sources.command()
@_WATCH
@click.option("--emit", type=click.Choice(["all", "none"]), help="What the next read does with what is there now.")
@_YES
@_DRY_RUN
@config_option
def reset(watch: str, emit: str | None, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Forget the baseline of a watch.

    Its next read is like the first. `--emit all` emits everything there that never became an event, `--emit none`
    marks it all as seen. What was delivered before is never delivered again.
    """
    if emit is None:
        if not is_terminal():
            raise click.UsageError("what should the next read emit? Say --emit all or --emit none.")
        emit = click.prompt("What should the next read emit", type=click.Choice(["all", "none"]), default="none")
    with _runtime(config_path) as rt:
        row = watches.find_watch(rt, watch)
        if not dry_run:
            confirm(f"Forget the baseline of {_title(row)}, and emit {emit} of what is there?", yes=yes)
        watches.reset(rt, row, "all" if emit == "all" else "none", dry_run=dry_run)
    click.echo(_done(row, f"reset; the next read emits {emit} of what is there", True, dry_run=dry_run))


@sources.command()
@_WATCH
@_DRY_RUN
@config_option
@json_option
def poll(watch: str, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Read a watch now, in this process; the worker delivers what is new."""
    with _runtime(config_path) as rt:
        row = watches.find_watch(rt, watch)
        if dry_run:
            click.echo(f"would read {_title(row)} now")
            return
        found = watches.poll_now(rt, row)
    if as_json:
        echo_json(api_models.PollResult.of(found))
    else:
        click.echo(_polled_words(row, found))
    if found.error or found.is_busy:
        sys.exit(1)


def _polled_words(row: Watch, found: watches.PollNowResult) -> str:
    if found.is_busy:
        return f"{_title(row)} was not read: it is being read already, or its host asked for a pause"
    if found.error:
        return f"{_title(row)} could not be read: {plain(logs.redact(found.error))}"
    cost = f" ({found.units} API units)" if found.units else ""
    return f"{_title(row)} was read: {found.new_items} new{cost}"


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
@_wishes
@_DRY_RUN
@config_option
@json_option
def import_file(file: Any, dry_run: bool, config_path: Path | None, as_json: bool, **given: Any) -> None:
    """Add every channel of FILE (- for standard input).

    FILE is OPML, Google Takeout's subscriptions.csv in any language, or a list with one channel, playlist or video
    a line; # begins a comment. Exit code 5 when a line could not be used.
    """
    content = file.read(channel_lists.MAX_BYTES + 1)
    with _runtime(config_path) as rt:
        lines = watches.import_list(rt, content, _wish(**given), dry_run=dry_run)
    counted = Counter(line.result for line in lines)
    if as_json:
        echo_json(api_models.ImportReport.of_lines(lines, dry_run=dry_run))
    else:
        for line in lines:
            click.echo(_import_words(line))
        would = "would be " if dry_run else ""
        click.echo(f"{counted['added']} {would}added, {counted['known']} known, {counted['invalid']} invalid")
    if counted["invalid"]:
        sys.exit(SOME_FAILED)


def _import_words(line: watches.ImportLineResult) -> str:
    name = f" ({plain(line.name, 60)})" if line.name else ""
    why = f": {plain(line.error)}" if line.error else ""
    return f"line {line.line}: {line.result} {plain(line.ref or line.text, 80)}{name}{why}"


@sources.command("export")
@click.option("--output", "-o", type=click.File("w", encoding="utf-8"), default="-", help="File; default: print it.")
@config_option
def export_file(output: Any, config_path: Path | None) -> None:
    """Write every watch as OPML, for feed readers and for `csi sources import`."""
    with _runtime(config_path) as rt:
        output.write(watches.export_list(rt))
