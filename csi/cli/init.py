"""`csi init`: write and test a first configuration, from four questions or from options."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

import click

from csi import logs, net, server
from csi.adapters import feed_discovery, reddit_subreddit
from csi.adapters.youtube import page_lookup
from csi.adapters.youtube.references import FREE_FORMS, UnknownReference, is_youtube_address, parse_reference
from csi.cli import envfile
from csi.cli.command import sidecar_url
from csi.cli.doctor import examine_queue, show
from csi.cli.output import is_terminal, plain, safe
from csi.cli.run import OWN_RECEIVER
from csi.config import setting_types
from csi.config.secrets import read_variable, secret_fault
from csi.doctor import run_checks
from csi.errors import UNHEALTHY, ConfigError, CsiError, PortInUse, SourceError
from csi.simulator.youtube import app as simulated

if TYPE_CHECKING:
    pass


SECRET, KEY, TOKEN = "CSI_UA_SHARED_SECRET", "YOUTUBE_API_KEY", "CSI_ADMIN_TOKEN"
RECEIVERS = "UA_SIGNALS_INGEST_SHARED_SECRET"
WEB_PORT, PORTS_TRIED = 8091, 20
CHANNELS, PLAYLISTS, FEEDS, SUBREDDITS = "youtube_channel_rss", "youtube_playlist", "feed", "reddit_subreddit"
ACCEPTED = f"{FREE_FORMS}, an @handle, r/name, or the address of any page with a feed"
COMMENTS = {
    "CSI_CONFIG_PATH": "the configuration file of this installation",
    "CSI_UA_ENDPOINT": "URL of the receiver's ingest endpoint: https, or http on this machine",
    SECRET: "secret; signs every request; the receiver needs the same",
    RECEIVERS: "secret; the same for our own receiver: csi receiver, csi run --receiver",
    KEY: "secret; YouTube Data API key, needed to watch playlists",
    TOKEN: "secret; grants access to the admin API and the dashboard's buttons",
}


T = TypeVar("T")


class WillNotOverwrite(CsiError):
    """The files exist, and --force was not given."""


@click.command()
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="PATH", help="Where to write it.")
@click.option("--env", "env_path", type=click.Path(path_type=Path), metavar="PATH", help="Where to write variables.")
@click.option("--state-dir", type=click.Path(path_type=Path), metavar="DIR", help="For database, queue and locks.")
@click.option("--endpoint", metavar="URL", help="The receiver's ingest endpoint.")
@click.option("--instance-id", default="csi-01", show_default=True, help="Names this instance to the receiver.")
@click.option("--watch", "watched", multiple=True, metavar="ID|URL|@HANDLE|r/NAME", help="What to watch; repeatable.")
@click.option("--newest", is_flag=True, help="Send the newest item of each watch at the start (first_poll: {last: 1}).")
@click.option("--simulator", metavar="URL", help="Read a `csi simulate youtube` at this address instead of YouTube.")
@click.option("--yes", is_flag=True, help="Ask nothing; use options, environment and defaults.")
@click.option("--force", is_flag=True, help="Replace existing files; they are kept as *.old.")
@click.option("--no-test", is_flag=True, help="Do not contact the receiver and the sources.")
def init(
    config_path: Path | None,
    env_path: Path | None,
    state_dir: Path | None,
    endpoint: str | None,
    instance_id: str,
    watched: tuple[str, ...],
    newest: bool,
    simulator: str | None,
    yes: bool,
    force: bool,
    no_test: bool,
) -> None:
    """Write a first configuration and the variables that go with it, and test both.

    Asks for the receiver's address, its secret, an API key, what to watch, and whether the newest item of each is sent
    at the start. A wrong answer is asked again. Secrets are not options: they are read from a hidden prompt, or from
    CSI_UA_SHARED_SECRET and YOUTUBE_API_KEY; without a secret, one is generated, and a token for the dashboard. Both
    files get mode 0600. Exit code 6 when the files are written and the test finds a problem.
    """
    logs.setup(level="CRITICAL", format="text")
    system = envfile.SYSTEM_CONFIG
    usual = system if os.geteuid() == 0 and system.parent.is_dir() else Path("config.yaml")
    config = (config_path or Path(os.environ.get("CSI_CONFIG_PATH") or usual)).absolute()
    env = (env_path or config.parent / "env").absolute()
    found = [str(path) for path in (config, env) if path.exists() or path.is_symlink()]
    if found and not force:
        verb = "exist" if len(found) > 1 else "exists"
        raise WillNotOverwrite(
            f"{' and '.join(found)} {verb}; --force writes new files and keeps the old ones as *.old"
        )
    state = state_dir or (Path("/var/lib/csi") if config.is_relative_to("/etc/csi") else config.parent / "state")
    if simulator is not None:
        simulator = _url(simulator).rstrip("/")
    choices = InitChoices(config, state.absolute(), instance_id, newest=newest, simulator=simulator, port=_free_port())
    choices, variables = _answers(choices, endpoint, watched, ask=is_terminal() and not yes)
    _write({config: config_text(choices), env: env_text(variables, COMMENTS)})
    click.echo(f"wrote {config} and {env}, both readable by you alone")
    if choices.port != WEB_PORT:
        click.echo(f"port {WEB_PORT} is in use by another program: the dashboard gets port {choices.port}")
    sys.exit(_test(config, env, variables["CSI_UA_ENDPOINT"], online=not no_test))


# ── the questions ───────────────────────────────────────────────────────────────────────────────────────


def _answers(
    choices: InitChoices, endpoint: str | None, watched: tuple[str, ...], *, ask: bool
) -> tuple[InitChoices, dict[str, str]]:
    url = endpoint or os.environ.get("CSI_UA_ENDPOINT") or ""
    if ask and not url:
        url = _asked("The receiver's address (empty: our own receiver on this machine)", _url)
    url = url or OWN_RECEIVER
    known = _known_secret(SECRET)
    if ask and not known and not _is_ours(url):
        known = _ask_secret("The receiver's secret (empty: generate one)", SECRET)
    secret = known or secrets.token_hex(32)
    key = _known_secret(KEY) or (
        _ask_secret("A YouTube API key (empty: none; only playlists need it)", KEY) if ask else ""
    )
    if choices.simulator is not None:
        key = key or simulated.API_KEY
    found = list(_resolved(watched, choices.simulator))
    if ask and not watched:
        question = "What to watch: @handles, ids, URLs, r/names (empty: later)"
        found = _asked(question, lambda text: list(_resolved(re.split(r"[,\s]+", text), choices.simulator))) or []
        for one in found:
            click.echo(f"  {plain(one.name, 60) if one.name else one.ref}: {one.source}", err=True)
        if found and not choices.newest:
            question = "Send the newest item of each at the start, to see one arrive?"
            choices = replace(choices, newest=click.confirm(question, default=True, err=True))
    return replace(choices, watches=tuple(dict.fromkeys(found)), has_key=bool(key)), {
        "CSI_CONFIG_PATH": str(choices.config_path),
        "CSI_UA_ENDPOINT": url,
        SECRET: secret,
        RECEIVERS: secret if _is_ours(url) else "",
        KEY: key,
        TOKEN: _known_secret(TOKEN) or secrets.token_hex(32),
    }


def _asked(question: str, read: Callable[[str], T]) -> T | Literal[""]:
    """An empty answer, or what `read` makes of one; asked again where it raises CsiError."""
    while True:
        text = str(click.prompt(question, default="", show_default=False, err=True)).strip()
        if not text:
            return ""
        try:
            return read(text)
        except CsiError as error:
            click.echo(f"  {safe(error)}", err=True)


def _url(text: str) -> str:
    try:
        return setting_types.check_url(text)
    except ValueError as error:
        raise ConfigError(f"{plain(text, 60)!r}: {error}") from error


def _is_ours(url: str) -> bool:
    """Whether our own receiver can have this address."""
    ours, given = urlsplit(OWN_RECEIVER), urlsplit(url)
    return given.path == ours.path and net.is_loopback(given.hostname or "")


def _free_port() -> int:
    """The usual port of the sidecar, or the next one that no other program has."""
    for port in range(WEB_PORT, WEB_PORT + PORTS_TRIED):
        with suppress(PortInUse):
            server.listen(server.resolve("127.0.0.1", port, setting="web.port"), setting="web.port").close()
            return port
    return WEB_PORT


def _ask_secret(question: str, name: str) -> str:
    """A hidden prompt, repeated until the value can be used."""
    while True:
        given = str(click.prompt(question, default="", hide_input=True, show_default=False, err=True)).strip()
        fault = _fault(name, given) if given else None
        if fault is None:
            return given
        click.echo(f"that {fault}", err=True)


def _known_secret(name: str) -> str:
    """The value from the environment, or from the file that NAME_FILE names. ConfigError never quotes it."""
    try:
        value = read_variable(name, os.environ) or ""
    except ValueError as error:
        raise ConfigError(f"environment variable {name}: {error}") from error
    if value and (fault := _fault(name, value)):
        raise ConfigError(f"environment variable {name}: {fault}")
    return value


def _fault(name: str, value: str) -> str | None:
    return secret_fault(value, shortest=1 if name == KEY else 8)


def _resolved(texts: Iterable[str], simulator: str | None) -> Iterator[NewWatch]:
    """What the texts name. A handle, a name or a video is looked up on YouTube's page, a feed is looked for."""
    for text in filter(None, (one.strip() for one in texts)):
        try:
            yield _found(text, simulator)
        except SourceError as error:
            raise ConfigError(f"{plain(text, 60)!r}: {error}; give {ACCEPTED}") from error


def _found(text: str, simulator: str | None) -> NewWatch:
    if name := reddit_subreddit.reference(text):
        return NewWatch(SUBREDDITS, name.lower())
    try:
        reference = parse_reference(text, [urlsplit(simulator).hostname or ""] if simulator else [])
    except UnknownReference as error:
        if is_youtube_address(text):
            raise
        if not text.lower().startswith(("http://", "https://")):
            raise ConfigError(f"{plain(text, 60)!r} is nothing that can be watched; give {ACCEPTED}") from error
        with net.Net(guard=net.address_guard.AddressGuard()) as web:
            feed = feed_discovery.find_feed(web, text)
        if feed is None:
            raise SourceError("no feed was found at this address", kind="missing") from error
        return NewWatch(FEEDS, feed.url, feed.title or None)
    if reference.is_ready:
        return NewWatch(PLAYLISTS if reference.kind == "playlist" else CHANNELS, reference.value)
    with net.Net() as client:
        channel = page_lookup.find_channel(client, reference, simulator)
    if channel is None:
        raise ConfigError(f"YouTube has no {reference.kind} {plain(reference.value, 60)!r}")
    return NewWatch(CHANNELS, channel.id, channel.title)


# ── the files ───────────────────────────────────────────────────────────────────────────────────────────


def _write(texts: Mapping[Path, str]) -> None:
    """Write all files or none. Drafts are created with mode 0600, so that secrets are never readable by others."""
    drafts = {path: path.with_name(f".{path.name}.{secrets.token_hex(4)}") for path in texts}
    try:
        for path, text in texts.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(drafts[path], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        for path, draft in drafts.items():
            if path.exists():
                os.replace(path, path.with_name(f"{path.name}.old"))
            os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}; see --config and --env") from error
    finally:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()


def _test(config: Path, env: Path, endpoint: str, *, online: bool) -> int:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    options = run_checks.CheckOptions(
        config, variables | envfile.read_variables(env), examine_queue, sidecar_url, online, at_work=False
    )
    awaits_receiver = _is_ours(endpoint)
    if awaits_receiver:
        parts = urlsplit(endpoint)
        with suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 80), timeout=2):
            awaits_receiver = False
    findings = run_checks.examine(options)
    if awaits_receiver:  # our receiver is not expected to answer before it is started
        text = "our receiver does not run yet: csi run --receiver starts it"
        findings = (
            replace(one, level="skip", text=text) if (one.check, one.level) == ("receiver", "fail") else one
            for one in findings
        )
    failed = any(one.level == "fail" for one in show(findings))
    is_found = env == Path("/etc/csi/env") or envfile.written_here(os.environ) == env
    csi = "csi" if is_found else f"csi --env-file {env}"
    click.echo(f"\nstart it:   {csi} run{' --receiver' if awaits_receiver else ''}")
    click.echo(f"examine it: {csi} doctor")
    return UNHEALTHY if failed else 0


_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")


@dataclass(frozen=True)
class NewWatch:
    """Something to watch, with its name where the lookup found it."""

    source: str
    ref: str
    name: str | None = None


@dataclass(frozen=True)
class InitChoices:
    """Values from the prompts or the options."""

    config_path: Path
    state_dir: Path
    instance_id: str
    watches: tuple[NewWatch, ...] = ()
    newest: bool = False
    simulator: str | None = None
    has_key: bool = False
    port: int = WEB_PORT


def config_text(choices: InitChoices) -> str:
    """The keys that a new installation usually changes, each with a comment; other keys keep their defaults."""
    stand_in = choices.simulator
    api = f"\n    api_base_url: {json.dumps(stand_in + simulated.API_PATH)}" if stand_in else ""
    template = f"{stand_in}{simulated.FEED_PATH}?channel_id={{channel_id}}"
    playlists = _watches(choices, PLAYLISTS, "id", "PL…")
    return _CONFIG.format(
        instance_id=_quoted(choices.instance_id),
        state_dir=_quoted(str(choices.state_dir)),
        first_poll="{last: 1}" if choices.newest else "mark_seen",
        feed_url=f"\n    feed_url_template: {json.dumps(template)}" if stand_in else "",
        channels=_watches(choices, CHANNELS, "channel_id", "UC…"),
        playlists_on="true" if choices.has_key or not playlists.startswith(" []") else "false",
        api=api,
        playlists=playlists,
        feeds=_watches(choices, FEEDS, "url", "https://example.org/feed.xml"),
        subreddits=_watches(choices, SUBREDDITS, "name", "python"),
        port=choices.port,
    )


def env_text(variables: Mapping[str, str], comments: Mapping[str, str]) -> str:
    """One `NAME=value` per line, readable by shells, systemd and `csi --env-file`."""
    lines = [
        "# The environment of CSI, written by csi init. It contains secrets: keep it private (mode 0600).\n",
        "# Use it with systemd (EnvironmentFile=), with csi --env-file PATH, or in a shell: set -a; . PATH; set +a\n",
    ]
    for name, value in variables.items():
        if _PLAIN.fullmatch(value):
            shell = value
        elif "'" not in value:  # single quotes where possible: systemd, shells and Docker Compose agree on them
            shell = f"'{value}'"
        else:
            shell = '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"\n# {comments[name]}\n" + (f"{name}={shell}\n" if value else f"#{name}=\n"))
    return "".join(lines)


def _quoted(text: str) -> str:
    """A JSON string is a valid YAML string. `$${` keeps the loader from expanding a variable."""
    return json.dumps(text.replace("${", "$${"))


def _watches(choices: InitChoices, source: str, key: str, example: str) -> str:
    found = [one for one in choices.watches if one.source == source]
    if not found:
        return f" []\n      # - {key}: {json.dumps(example, ensure_ascii=False)}\n      #   route_profile: news"
    return "".join(
        f"\n      - {key}: {_quoted(one.ref)}"
        + (f"\n        name: {_quoted(plain(one.name, 100))}" if one.name else "")
        + "\n        route_profile: news"
        for one in found
    )


_CONFIG = """\
# CSI configuration, written by csi init. Keys that are not here keep their defaults: csi config show prints all.
# After a change: csi config check. Secrets come from the environment, never from this file.

csi:
  instance_id: {instance_id}  # identifies this instance to the receiver
  state_dir: {state_dir}  # database, queue and locks

sources:
  # Channels are read from their free feed: no key needed.
  youtube_channel_rss:
    enabled: true
    poll_interval_seconds: 300   # time between two reads of one channel
    # What the first read sends: mark_seen (nothing), {{last: N}} (the newest N), or all.
    first_poll: {first_poll}{feed_url}
    watchlist:{channels}

  # Playlists are read through the Data API: needs YOUTUBE_API_KEY; each page read costs one unit.
  youtube_playlist:
    enabled: {playlists_on}
    poll_interval_seconds: 30    # while the playlist is active; longer while it is idle
    first_poll: {first_poll}
    quota_limit: 10000           # API units a day that Google grants you{api}
    playlists:{playlists}

  # Any RSS, Atom or JSON feed.
  feed:
    enabled: true
    poll_interval_seconds: 900
    first_poll: {first_poll}
    feeds:{feeds}

  # Without an account Reddit allows one request a minute, for all subreddits together.
  reddit_subreddit:
    enabled: true
    first_poll: {first_poll}
    subreddits:{subreddits}

# Where the receiver routes an event. Choose the names freely.
route_profiles:
  news:
    pipeline: creator_watchlist_handler
    priority: standard
    tags: [watchlist]

delivery:
  ua_endpoint: ${{CSI_UA_ENDPOINT}}          # the receiver's address
  shared_secret: ${{CSI_UA_SHARED_SECRET}}   # signs every request; the receiver needs the same
  priority_behavior:
    standard:
      max_delay_seconds: 5       # so long an event waits for others of its batch

web:
  host: 127.0.0.1                # the sidecar's pages: health, metrics, dashboard
  port: {port}
"""
