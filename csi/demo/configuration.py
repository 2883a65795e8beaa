"""Command lines, environment and configuration files of the demo's processes."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from csi.errors import CsiError
from csi.simulator.youtube.atom_feed import FEED_SIZE

_CONSUMER = ("-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25")
THREADS = 24
WORKER = ("huey_config.huey", "-w", str(THREADS), *_CONSUMER)
"""The arguments of the worker in the Procfile."""

WORKER_COMMAND = ("huey.bin.huey_consumer", *WORKER)
PROCESSING_COMMAND = ("huey.bin.huey_consumer", "tasks.processing.huey", "-w", "4", *_CONSUMER)
SIDECAR_COMMAND = ("csi.main",)

PROCESSING_FILE = "processing.yaml"
POLL_SECONDS = 1
QUOTA = 10_000_000
MAX_POLL_GAP = 5.0
"""The longest time between two polls of a feed on a busy machine, in seconds."""

_CSI_PREFIXES = ("CSI_", "UA_SIGNALS_", "YOUTUBE_API_KEY")


class RateTooHighError(CsiError):
    """New items would leave the feeds before they are read."""

    exit_code = 2


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command. `rate` is new items per second over all channels and playlists."""

    channels: int = 5
    playlists: int = 3
    rate: float = 4.0
    faults: str = ""
    processing: bool = False

    @property
    def watches(self) -> int:
        return self.channels + self.playlists

    @property
    def highest_rate(self) -> float:
        """At a higher rate, items may leave a feed before it is polled. Playlists have no such limit."""
        return self.watches * FEED_SIZE / MAX_POLL_GAP if self.channels else float("inf")


@dataclass(frozen=True)
class DemoSecrets:
    """New for each run, and passed to the processes in the environment only."""

    shared: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    api: str = field(default_factory=lambda: secrets.token_hex(20), repr=False)
    admin: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)


@dataclass(frozen=True)
class SimulatorInfo:
    """Addresses and ids that the simulated YouTube printed at its start."""

    base_url: str
    api_base_url: str
    feed_url_template: str
    channels: tuple[str, ...]
    playlists: tuple[str, ...]


def check_rate(options: DemoOptions) -> None:
    if options.rate > options.highest_rate:
        raise RateTooHighError(
            f"--rate {options.rate:g} is too fast for {options.channels} channels and {options.playlists} playlists: "
            f"a feed shows only its {FEED_SIZE} newest items, so some would be missed. Use at most "
            f"{options.highest_rate:g}, or more channels or playlists."
        )


def read_simulator_info(text: str) -> SimulatorInfo | None:
    """Read the second line of the simulator's output; None while it is incomplete."""
    lines = text.split("\n")
    if len(lines) < 3:
        return None
    facts = json.loads(lines[1])
    return SimulatorInfo(**facts | {name: tuple(facts[name]) for name in ("channels", "playlists")})


def read_receiver_endpoint(text: str) -> str | None:
    """Read the address in the first line of the receiver's output; None while it is incomplete."""
    line, newline, _ = text.partition("\n")
    return line.rpartition(" ")[2] if newline else None


def simulator_command(options: DemoOptions, ledger: Path) -> tuple[str, ...]:
    """One video in each channel and playlist. The demo publishes the others itself, so that it can stop publishing."""
    size = ("--channels", str(options.channels), "--playlists", str(options.playlists), "--videos", "1")
    limits = ("--quota", str(QUOTA), "--faults", options.faults)
    return ("csi.cli.main", "simulate", "youtube", *size, *limits, "--ledger", str(ledger))


def receiver_command(home: Path, ledger: Path, *, pages: bool = False) -> tuple[str, ...]:
    files = ("--db", str(home / "receiver.db"), "--ledger", str(ledger))
    dashboard = (f"--processing={home / PROCESSING_FILE}",) if pages else ()
    return ("csi.cli.main", "receiver", "--port", "0", *files, *dashboard)


def processing_config(home: Path, simulator: SimulatorInfo) -> dict[str, Any]:
    """processing.yaml of the demo: the simulator's captions and extractive summaries, both free of charge."""
    return {
        "state_dir": str(home / "processing"),
        "receiver_db": str(home / "receiver.db"),
        "log_format": "json",
        "routes": {
            "demo_playlist": {"action": "process", "documents": ["concept", "implementation"]},
            "demo_channel": {"action": "process", "notify": True},
        },
        "limits": {"videos_per_day": 100_000},
        "transcription": {"providers": ["captions"], "captions": {"base_url": simulator.base_url}},
        "notifications": {"window": 2},
    }


def environment(given: Mapping[str, str], keys: DemoSecrets, config: Path) -> dict[str, str]:
    """`given` without the settings of a real CSI: the demo must never send to a real receiver."""
    kept = {name: value for name, value in given.items() if not name.startswith(_CSI_PREFIXES) and name != "PORT"}
    return kept | {
        "CSI_CONFIG_PATH": str(config),
        "CSI_UA_SHARED_SECRET": keys.shared,
        "CSI_ADMIN_TOKEN": keys.admin,
        "UA_SIGNALS_INGEST_SHARED_SECRET": keys.shared,
        "YOUTUBE_API_KEY": keys.api,
        "CSI_SIMULATE_API_KEY": keys.api,
        "CSI_PROCESSING_CONFIG": str(config.with_name(PROCESSING_FILE)),
    }


def ingester_config(home: Path, simulator: SimulatorInfo, endpoint: str, port: int) -> dict[str, Any]:
    """config.yaml of the demo: short intervals, and items that exist at the start are delivered."""
    return {
        "csi": {"instance_id": "csi-demo", "environment": "demo", "log_format": "json", "state_dir": str(home)},
        "sources": {
            "youtube_playlist": {
                "poll_interval_seconds": POLL_SECONDS,
                "first_poll": "all",
                "adaptive_polling": {"enabled": False},
                "quota_limit": QUOTA,
                "api_base_url": simulator.api_base_url,
                "playlists": [
                    {"id": ref, "name": f"Playlist {number}", "route_profile": "playlist"}
                    for number, ref in enumerate(simulator.playlists, 1)
                ],
            },
            "youtube_channel_rss": {
                "poll_interval_seconds": POLL_SECONDS,
                "first_poll": "all",
                "feed_url_template": simulator.feed_url_template,
                "watchlist": [
                    {"channel_id": ref, "name": f"Channel {number}", "route_profile": "channel"}
                    for number, ref in enumerate(simulator.channels, 1)
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
