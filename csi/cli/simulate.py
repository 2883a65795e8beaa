"""`csi simulate`: a stand-in for an outside service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import clock
from csi.config import durations
from csi.simulator import http_server
from csi.simulator.youtube import app as site
from csi.simulator.youtube import traffic as streets
from csi.simulator.youtube import world as worlds

if TYPE_CHECKING:
    from csi.simulator.http_server import QuietServer
    from csi.simulator.youtube.traffic import ContentIds


class Duration(click.ParamType[float]):
    """`100ms`, `2s`; a bare number is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        try:
            return float(text) if text.replace(".", "", 1).isdecimal() else durations.parse_duration(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def simulate() -> None:
    """Run a stand-in for an outside service."""


@simulate.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--channels", default=5, show_default=True, type=click.IntRange(0), help="How many channels.")
@click.option("--playlists", default=2, show_default=True, type=click.IntRange(0), help="How many playlists.")
@click.option("--videos", default=15, show_default=True, type=click.IntRange(0), help="In each, at the start.")
@click.option("--rate", default=0.0, show_default=True, type=click.FloatRange(0), help="New items a second.")
@click.option("--quota", default=10_000, show_default=True, type=click.IntRange(0), help="API units a day.")
@click.option(
    "--api-key",
    default="demo-key",
    envvar="CSI_SIMULATE_API_KEY",
    show_default=True,
    show_envvar=True,
    help="Callers must send it.",
)
@click.option("--faults", default="", help="A fault script, as in feed:404@10-40,api:slow=2s, or night, storm.")
@click.option("--latency", default="0s", show_default=True, type=Duration(), help="Every answer waits so long.")
@click.option("--seed", default=0, show_default=True, help="The same seed makes the same ids.")
@click.option("--ledger", type=click.Path(dir_okay=False, path_type=Path), help="Write down what was served.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
def youtube(
    host: str,
    port: int,
    channels: int,
    playlists: int,
    videos: int,
    rate: float,
    quota: int,
    api_key: str,
    faults: str,
    latency: float,
    seed: int,
    ledger: Path | None,
    seconds: float | None,
) -> None:
    """Run a simulated YouTube: feeds and Data API, with quota, faults and a control API under /sim."""
    world = worlds.World(seed)
    cast = streets.populate(world, channels=channels, playlists=playlists, videos=videos, at=clock.now())
    options = site.YouTubeOptions(
        api_key=api_key, quota=quota, faults=faults, latency=latency, ledger_path=ledger, seed=seed
    )
    app = site.create_app(world, options)
    traffic = streets.Traffic(world, cast, seed)
    with contextlib.closing(http_server.bind(host, port)) as sock:
        asyncio.run(_serve(http_server.make_server(app), sock, cast, traffic, rate, seconds))


async def _serve(
    server: QuietServer,
    sock: socket.socket,
    cast: ContentIds,
    traffic: streets.Traffic,
    rate: float,
    seconds: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop, server)
    if seconds:
        loop.call_later(seconds, _stop, server)
    _announce(http_server.base_url(sock), cast)
    await http_server.serve_until(server, sock, lambda: streets.generate_traffic(traffic, rate, clock.now))


def _announce(base: str, cast: ContentIds) -> None:
    """Two lines for people and for a parent process: the sentence, then the same as JSON."""
    click.echo(f"simulated YouTube listening on {base}")
    facts = {
        "base_url": base,
        "api_base_url": base + site.API_PATH,
        "feed_url_template": f"{base}{site.FEED_PATH}?channel_id={{channel_id}}",
        "channels": cast.channels,
        "playlists": cast.playlists,
    }
    click.echo(json.dumps(facts))


def _stop(server: QuietServer) -> None:
    server.should_exit = True
