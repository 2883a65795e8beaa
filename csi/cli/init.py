"""`csi init`: write and test a first configuration, from four questions or from options."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import logs, net
from csi.adapters.youtube import page_lookup, references
from csi.adapters.youtube.references import FREE_FORMS, parse_reference
from csi.cli.command import sidecar_url
from csi.cli.doctor import examine_queue, show
from csi.cli.envfile import read_variables
from csi.cli.output import is_terminal, plain
from csi.config.secrets import read_variable, secret_fault
from csi.doctor import run_checks
from csi.errors import UNHEALTHY, ConfigError, CsiError, SourceError

if TYPE_CHECKING:
    from csi.adapters.youtube.references import Reference


OWN_RECEIVER = "http://127.0.0.1:8090/api/v1/signals/ingest"
SECRET, KEY, TOKEN = "CSI_UA_SHARED_SECRET", "YOUTUBE_API_KEY", "CSI_ADMIN_TOKEN"
COMMENTS = {
    "CSI_CONFIG_PATH": "the configuration file of this installation",
    "CSI_UA_ENDPOINT": "URL of the receiver's ingest endpoint: https, or http on this machine",
    SECRET: "secret; signs every request; the receiver needs the same (CSI's own: UA_SIGNALS_INGEST_SHARED_SECRET)",
    KEY: "secret; YouTube Data API key, needed to watch playlists",
    TOKEN: "secret; grants access to the admin API and the dashboard's buttons",
}


class WillNotOverwrite(CsiError):
    """The files exist, and --force was not given."""


@click.command()
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="PATH", help="Where to write it.")
@click.option("--env", "env_path", type=click.Path(path_type=Path), metavar="PATH", help="Where to write variables.")
@click.option("--state-dir", type=click.Path(path_type=Path), metavar="DIR", help="For database, queue and locks.")
@click.option("--endpoint", metavar="URL", help="The receiver's ingest endpoint.")
@click.option("--instance-id", default="csi-01", show_default=True, help="Names this instance to the receiver.")
@click.option("--watch", "watched", multiple=True, metavar="ID|URL", help="A channel or playlist; repeatable.")
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
    yes: bool,
    force: bool,
    no_test: bool,
) -> None:
    """Write a first configuration and the variables that go with it, and test both.

    Asks for the receiver's address, its secret, an API key and what to watch. Secrets are not options: they are read
    from a hidden prompt, or from CSI_UA_SHARED_SECRET and YOUTUBE_API_KEY; without a secret, one is generated. Both
    files get mode 0600. Exit code 6 when the files are written and the test finds a problem.
    """
    logs.setup(level="CRITICAL", format="text")
    system = Path("/etc/csi/config.yaml")
    usual = system if os.geteuid() == 0 and system.parent.is_dir() else Path("config.yaml")
    config = (config_path or Path(os.environ.get("CSI_CONFIG_PATH") or usual)).absolute()
    env = (env_path or config.parent / "env").absolute()
    found = [str(path) for path in (config, env) if path.exists() or path.is_symlink()]
    if found and not force:
        raise WillNotOverwrite(f"{' and '.join(found)} exist; --force replaces them and keeps the old ones as *.old")
    state = state_dir or (Path("/var/lib/csi") if config.is_relative_to("/etc/csi") else config.parent / "state")
    choices = InitChoices(config, state.absolute(), instance_id)
    choices, variables = _answers(choices, endpoint, watched, ask=is_terminal() and not yes)
    _write({config: config_text(choices), env: env_text(variables, COMMENTS)})
    click.echo(f"wrote {config} and {env}, both readable by you alone")
    sys.exit(_test(config, env, online=not no_test))


# ── the questions ───────────────────────────────────────────────────────────────────────────────────────


def _answers(
    choices: InitChoices, endpoint: str | None, watched: tuple[str, ...], *, ask: bool
) -> tuple[InitChoices, dict[str, str]]:
    url = endpoint or os.environ.get("CSI_UA_ENDPOINT") or OWN_RECEIVER
    if ask and not endpoint and not os.environ.get("CSI_UA_ENDPOINT"):
        url = str(click.prompt("The receiver's address", default=OWN_RECEIVER, err=True)).strip()
    secret = _known_secret(SECRET) or (
        _ask_secret("The receiver's secret (empty: generate one)", SECRET) if ask else ""
    )
    key = _known_secret(KEY) or (_ask_secret("A YouTube API key (empty: none, channels only)", KEY) if ask else "")
    if ask and not watched:
        text = click.prompt("Channels and playlists to watch (ids or URLs, empty: later)", default="", err=True)
        watched = tuple(str(text).replace(",", " ").split())
    found = [_reference(text) for text in watched]
    channels = tuple(dict.fromkeys(one.value for one in found if one.kind == "channel"))
    playlists = tuple(dict.fromkeys(one.value for one in found if one.kind == "playlist"))
    return replace(choices, channels=channels, playlists=playlists), {
        "CSI_CONFIG_PATH": str(choices.config_path),
        "CSI_UA_ENDPOINT": url,
        SECRET: secret or secrets.token_hex(32),
        KEY: key,
        TOKEN: _known_secret(TOKEN) or secrets.token_hex(32),
    }


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


def _reference(text: str) -> Reference:
    """A channel or playlist. A handle, name or video is looked up by one read of YouTube's page."""
    found = parse_reference(text)
    if found.is_ready:
        return found
    try:
        channel = page_lookup.find_channel(net.Net(), found)
    except SourceError as error:
        raise ConfigError(f"{plain(text, 60)!r}: {error}; give {FREE_FORMS}") from error
    if channel is None:
        raise ConfigError(f"YouTube has no {found.kind} {plain(found.value, 60)!r}")
    return references.Reference("channel", channel.id)


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


def _test(config: Path, env: Path, *, online: bool) -> int:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    options = run_checks.CheckOptions(
        config, variables | read_variables(env), examine_queue, sidecar_url, online, at_work=False
    )
    failed = any(one.level == "fail" for one in show(run_checks.examine(options)))
    click.echo(f"\nstart it:   csi --env-file {env} run")
    click.echo(f"examine it: csi --env-file {env} doctor")
    return UNHEALTHY if failed else 0


_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")


@dataclass(frozen=True)
class InitChoices:
    """Values from the prompts or the options."""

    config_path: Path
    state_dir: Path
    instance_id: str
    channels: tuple[str, ...] = ()
    playlists: tuple[str, ...] = ()


def config_text(choices: InitChoices) -> str:
    """The keys that a new installation usually changes, each with a comment; other keys keep their defaults."""
    return _CONFIG.format(
        instance_id=_quoted(choices.instance_id),
        state_dir=_quoted(str(choices.state_dir)),
        channels_on="true" if choices.channels else "false",
        channels=_watches("channel_id", choices.channels, "UCxxxxxxxxxxxxxxxxxxxxxx"),
        playlists_on="true" if choices.playlists else "false",
        playlists=_watches("id", choices.playlists, "PLxxxxxxxxxxxxxxxx"),
    )


def env_text(variables: Mapping[str, str], comments: Mapping[str, str]) -> str:
    """One `NAME=value` per line, readable by shells, systemd and `csi --env-file`."""
    lines = [
        "# The environment of CSI, written by csi init. It contains secrets: keep it private (mode 0600).\n",
        "# Use it with systemd (EnvironmentFile=), with csi --env-file PATH, or in a shell: set -a; . PATH; set +a\n",
    ]
    for name, value in variables.items():
        shell = value if _PLAIN.fullmatch(value) else _in_quotes(value)
        lines.append(f"\n# {comments[name]}\n" + (f"{name}={shell}\n" if value else f"#{name}=\n"))
    return "".join(lines)


def _in_quotes(value: str) -> str:
    """Single quotes where possible: systemd, shells and Docker Compose agree on them."""
    return f"'{value}'" if "'" not in value else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _quoted(text: str) -> str:
    """A JSON string is a valid YAML string. `$${` keeps the loader from expanding a variable."""
    return json.dumps(text.replace("${", "$${"))


def _watches(key: str, names: tuple[str, ...], example: str) -> str:
    if not names:
        return f" []\n      # - {key}: {json.dumps(example)}\n      #   route_profile: news"
    return "".join(f"\n      - {key}: {json.dumps(name)}\n        route_profile: news" for name in names)


_CONFIG = """\
# CSI configuration, written by csi init. Keys that are not here keep their defaults: csi config show prints all.
# After a change: csi config check. Secrets come from the environment, never from this file.

csi:
  instance_id: {instance_id}  # identifies this instance to the receiver
  state_dir: {state_dir}  # database, queue and locks

sources:
  # Channels are read from their free feed: no key needed.
  youtube_channel_rss:
    enabled: {channels_on}
    poll_interval_seconds: 300   # time between two reads of one channel
    first_poll: mark_seen        # existing items are not sent at the first read; all and {{last: N}} send them
    watchlist:{channels}

  # Playlists are read through the Data API: needs YOUTUBE_API_KEY; each page read costs one unit.
  youtube_playlist:
    enabled: {playlists_on}
    poll_interval_seconds: 30    # while the playlist is active; longer while it is idle
    first_poll: mark_seen
    quota_limit: 10000           # API units a day that Google grants you
    playlists:{playlists}

# Where the receiver routes an event. Choose the names freely.
route_profiles:
  news:
    pipeline: creator_watchlist_handler
    priority: standard
    tags: [watchlist]

delivery:
  ua_endpoint: ${{CSI_UA_ENDPOINT}}          # the receiver's address
  shared_secret: ${{CSI_UA_SHARED_SECRET}}   # signs every request; the receiver needs the same

web:
  host: 127.0.0.1                # the sidecar's pages: health, metrics, dashboard
  port: 8091
"""
