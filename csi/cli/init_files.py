"""The files that `csi init` writes: a short commented configuration, and the variables that go with it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")


@dataclass(frozen=True)
class InitChoices:
    """What was asked, or given by options."""

    config_path: Path
    state_dir: Path
    instance_id: str
    channels: tuple[str, ...] = ()
    playlists: tuple[str, ...] = ()


def config_text(choices: InitChoices) -> str:
    """Every key that a beginner changes, each with its reason; the rest keeps its default."""
    return _CONFIG.format(
        instance_id=_quoted(choices.instance_id),
        state_dir=_quoted(str(choices.state_dir)),
        channels_on=_yes(choices.channels),
        channels=_watches("channel_id", choices.channels, "UCxxxxxxxxxxxxxxxxxxxxxx"),
        playlists_on=_yes(choices.playlists),
        playlists=_watches("id", choices.playlists, "PLxxxxxxxxxxxxxxxx"),
    )


def env_text(variables: Mapping[str, str], comments: Mapping[str, str]) -> str:
    """One `NAME=value` a line, readable by shells, systemd and `csi --env-file` alike."""
    return "".join(_env_lines(variables, comments))


def _env_lines(variables: Mapping[str, str], comments: Mapping[str, str]) -> Iterator[str]:
    yield "# The environment of CSI, written by csi init. It holds secrets: keep it to yourself (mode 0600).\n"
    yield "# Use it with systemd (EnvironmentFile=), with csi --env-file PATH, or in a shell: set -a; . PATH; set +a\n"
    for name, value in variables.items():
        yield f"\n# {comments[name]}\n"
        yield f"{name}={_shell(value)}\n" if value else f"#{name}=\n"


def _shell(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _quoted(text: str) -> str:
    """A JSON string is a YAML string, whatever is in it; `${` must not be taken for a variable."""
    return json.dumps(text.replace("${", "$${"))


def _yes(names: tuple[str, ...]) -> str:
    return "true" if names else "false"


def _watches(key: str, names: tuple[str, ...], example: str) -> str:
    if not names:
        return f" []\n      # - {key}: {json.dumps(example)}\n      #   route_profile: news"
    return "".join(f"\n      - {key}: {json.dumps(name)}\n        route_profile: news" for name in names)


_CONFIG = """\
# CSI configuration, written by csi init. What is not here keeps its default: csi config show prints all of it.
# After a change: csi config check. Secrets never stand here; they come from the environment.

csi:
  instance_id: {instance_id}  # names this instance to the receiver
  state_dir: {state_dir}  # database, queue and locks

sources:
  # Channels are read from their free feed: no key needed.
  youtube_channel_rss:
    enabled: {channels_on}
    poll_interval_seconds: 300   # time between two reads of one channel
    first_poll: mark_seen        # what is there at the first read is not sent; all and {{last: N}} send it
    watchlist:{channels}

  # Playlists are read through the Data API: needs YOUTUBE_API_KEY, and costs a unit a read and page.
  youtube_playlist:
    enabled: {playlists_on}
    poll_interval_seconds: 30    # while something happens; slower while nothing does
    first_poll: mark_seen
    quota_limit: 10000           # API units a day that Google gives you
    playlists:{playlists}

# Where the receiver should take an event. The names are yours.
route_profiles:
  news:
    pipeline: creator_watchlist_handler
    priority: standard
    tags: [watchlist]

delivery:
  ua_endpoint: ${{CSI_UA_ENDPOINT}}          # the receiver's address
  shared_secret: ${{CSI_UA_SHARED_SECRET}}   # signs every request; the receiver has the same

web:
  host: 127.0.0.1                # the sidecar's pages: health, metrics, dashboard
  port: 8091
"""
