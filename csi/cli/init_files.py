"""The text of the files that `csi init` writes: a commented configuration and its environment variables."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
        shell = value if _PLAIN.fullmatch(value) else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"\n# {comments[name]}\n" + (f"{name}={shell}\n" if value else f"#{name}=\n"))
    return "".join(lines)


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
