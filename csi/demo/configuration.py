"""What the demo's processes are told: command lines, environment and configuration."""

import importlib.util
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from csi.errors import CsiError
from csi.simulator.youtube.atom_feed import FEED_SIZE

WORKER = (
    "huey_config.huey",
    "-w",
    "24",
    "-k",
    "thread",
    "-d",
    "0.05",
    "-m",
    "0.5",
    "-s",
    "1",
    "-g",
    "TERM",
    "-t",
    "25",
)
"""The Procfile's worker, word for word."""

PROCESSING = "processing.yaml"
POLL_SECONDS = 1
QUOTA = 10_000_000
MOST_BETWEEN_POLLS = 5.0
"""How long a busy machine may take from one read of a feed to the next, in seconds."""

_OURS = ("CSI_", "UA_SIGNALS_", "YOUTUBE_API_KEY")


class RateTooHighError(CsiError):
    """More items than the feeds can show."""

    exit_code = 2


@dataclass(frozen=True)
class DemoOptions:
    """What the audience asked for. `rate` is new items a second, over all channels and playlists."""

    channels: int = 5
    playlists: int = 3
    rate: float = 4.0
    faults: str = ""
    processing: bool = False

    @property
    def homes(self) -> int:
        return self.channels + self.playlists

    @property
    def highest_rate(self) -> float:
        """Beyond it, items may leave a feed before they were read. Playlists alone have no such limit."""
        return self.homes * FEED_SIZE / MOST_BETWEEN_POLLS if self.channels else float("inf")


@dataclass(frozen=True)
class DemoSecrets:
    """Fresh for each run and passed by environment only."""

    shared: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    api: str = field(default_factory=lambda: secrets.token_hex(20), repr=False)


@dataclass(frozen=True)
class SimulatorInfo:
    """The simulated YouTube, as it announced itself."""

    base_url: str
    api_base_url: str
    feed_url_template: str
    channels: tuple[str, ...]
    playlists: tuple[str, ...]


def check_rate(shape: DemoOptions) -> None:
    if shape.rate > shape.highest_rate:
        raise RateTooHighError(
            f"--rate {shape.rate:g} is too fast for {shape.channels} channels and {shape.playlists} playlists: a feed "
            f"shows only its {FEED_SIZE} newest, so some would never be seen. Use at most {shape.highest_rate:g}, or "
            "more channels or playlists."
        )


def read_simulator_info(text: str) -> SimulatorInfo | None:
    """The simulator's second line; None while it has not come yet."""
    lines = text.split("\n")
    if len(lines) < 3:
        return None
    facts = json.loads(lines[1])
    lists = {name: tuple(facts[name]) for name in ("channels", "playlists")}
    return SimulatorInfo(facts["base_url"], facts["api_base_url"], facts["feed_url_template"], **lists)


def read_receiver_endpoint(text: str) -> str | None:
    """The receiver's address from its first line."""
    line, newline, _ = text.partition("\n")
    return line.rpartition(" ")[2] if newline else None


def simulator_command(shape: DemoOptions, ledger: Path) -> tuple[str, ...]:
    """One video in each to begin with. The demo itself publishes the rest, so that it can stop doing so."""
    size = ("--channels", str(shape.channels), "--playlists", str(shape.playlists), "--videos", "1")
    limits = ("--quota", str(QUOTA), "--faults", shape.faults)
    return ("csi.cli.main", "simulate", "youtube", *size, *limits, "--ledger", str(ledger))


def receiver_command(home: Path, ledger: Path, *, pages: bool = False) -> tuple[str, ...]:
    dashboard = (f"--processing={home / PROCESSING}",) if pages else ()
    return (
        "csi.cli.main",
        "receiver",
        "--port",
        "0",
        "--db",
        str(home / "receiver.db"),
        "--ledger",
        str(ledger),
        *dashboard,
    )


def processing_command() -> tuple[str, ...]:
    return ("huey.bin.huey_consumer", "tasks.processing.huey", "-w", "4", *WORKER[3:])


def processing_config(home: Path, site: SimulatorInfo) -> dict[str, Any]:
    """The demo's processing.yaml: captions of the simulator, extractive summaries, nothing that costs money."""
    return {
        "state_dir": str(home / "processing"),
        "receiver_db": str(home / "receiver.db"),
        "log_format": "json",
        "routes": {
            "demo_playlist": {"action": "process", "documents": ["concept", "implementation"]},
            "demo_channel": {"action": "process", "notify": True},
        },
        "limits": {"videos_per_day": 100_000},
        "transcription": {"providers": ["captions"], "captions": {"base_url": site.base_url}},
        "notifications": {"window": 2},
    }


def worker_command() -> tuple[str, ...]:
    return ("huey.bin.huey_consumer", *WORKER)


def sidecar_command() -> tuple[str, ...]:
    return ("csi.main",)


def environment(given: Mapping[str, str], keys: DemoSecrets, config: Path) -> dict[str, str]:
    """The user's environment without his real CSI: a demo must never send to a real receiver."""
    kept = {name: value for name, value in given.items() if not name.startswith(_OURS) and name != "PORT"}
    return kept | {
        "CSI_CONFIG_PATH": str(config),
        "CSI_UA_SHARED_SECRET": keys.shared,
        "UA_SIGNALS_INGEST_SHARED_SECRET": keys.shared,
        "YOUTUBE_API_KEY": keys.api,
        "CSI_SIMULATE_API_KEY": keys.api,
        "CSI_PROCESSING_CONFIG": str(config.with_name(PROCESSING)),
    }


def ingester_config(home: Path, site: SimulatorInfo, endpoint: str, port: int) -> dict[str, Any]:
    """The demo's config.yaml: everything is fast, and every item counts."""
    return {
        "csi": {
            "instance_id": "csi-demo",
            "environment": "demo",
            "log_format": "json",
            "state_dir": str(home),
        },
        "sources": {
            "youtube_playlist": {
                "poll_interval_seconds": POLL_SECONDS,
                "first_poll": "all",
                "adaptive_polling": {"enabled": False},
                "quota_limit": QUOTA,
                "api_base_url": site.api_base_url,
                "playlists": [
                    {"id": ref, "name": f"Playlist {number}", "route_profile": "playlist"}
                    for number, ref in enumerate(site.playlists, 1)
                ],
            },
            "youtube_channel_rss": {
                "poll_interval_seconds": POLL_SECONDS,
                "first_poll": "all",
                "feed_url_template": site.feed_url_template,
                "watchlist": [
                    {"channel_id": ref, "name": f"Channel {number}", "route_profile": "channel"}
                    for number, ref in enumerate(site.channels, 1)
                ],
            },
        },
        "route_profiles": {
            "playlist": {"pipeline": "demo_playlist", "priority": "urgent", "tags": ["demo"]},
            "channel": {"pipeline": "demo_channel", "priority": "standard", "tags": ["demo"]},
        },
        "delivery": {
            "ua_endpoint": endpoint,
            "priority_behavior": {"standard": {"batch_size": 100, "max_delay_seconds": 0.2}},
        },
        "web": {"port": port},
    }


def code_dir() -> Path:
    """Where `huey_config` can be imported: the project's folder, or site-packages."""
    found = importlib.util.find_spec("huey_config")
    if found is None or found.origin is None:
        raise CsiError("huey_config.py is not where Python looks for it; install csi again, or run it in its folder")
    return Path(found.origin).parent
