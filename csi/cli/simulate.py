"""`csi simulate`: a stand-in for an outside service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from functools import partial
from pathlib import Path

import click

from csi import clock
from csi.config import durations
from csi.simulator import http_server
from csi.simulator.youtube import app, content, world


class DurationOrSeconds(click.ParamType[float]):
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
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--channels", default=5, show_default=True, type=click.IntRange(0), help="Number of channels.")
@click.option("--playlists", default=2, show_default=True, type=click.IntRange(0), help="Number of playlists.")
@click.option("--videos", default=15, show_default=True, type=click.IntRange(0), help="Items in each, at the start.")
@click.option("--rate", default=0.0, show_default=True, type=click.FloatRange(0), help="New items per second.")
@click.option("--quota", default=10_000, show_default=True, type=click.IntRange(0), help="API units per day.")
@click.option(
    "--api-key",
    default="demo-key",
    envvar="CSI_SIMULATE_API_KEY",
    show_default=True,
    show_envvar=True,
    help="The API key that callers must send.",
)
@click.option("--faults", default="", help="A fault script, as in feed:404@10-40,api:slow=2s, or night, storm.")
@click.option("--latency", default="0s", show_default=True, type=DurationOrSeconds(), help="Delay of every response.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same ids.")
@click.option("--ledger", type=click.Path(dir_okay=False, path_type=Path), help="Record served items in this file.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
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
    simulated = world.World(seed)
    ids = content.populate(simulated, channels=channels, playlists=playlists, videos=videos, at=clock.now())
    options = app.YouTubeOptions(
        api_key=api_key, quota=quota, faults=faults, latency=latency, ledger_path=ledger, seed=seed
    )
    server = http_server.make_server(app.create_app(simulated, options))
    new_items = content.Traffic(simulated, ids, seed)

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), partial(setattr, server, "should_exit", True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        if seconds:
            loop.call_later(seconds, stop)
        # Two lines: a sentence, then the addresses and ids as JSON for a parent process.
        base = http_server.base_url(sock)
        click.echo(f"simulated YouTube listening on {base}")
        facts = {
            "base_url": base,
            "api_base_url": base + app.API_PATH,
            "feed_url_template": f"{base}{app.FEED_PATH}?channel_id={{channel_id}}",
            "channels": ids.channels,
            "playlists": ids.playlists,
        }
        click.echo(json.dumps(facts))
        await http_server.serve_until_stopped(
            server, sock, lambda: content.generate_traffic(new_items, rate, clock.now)
        )

    with contextlib.closing(http_server.listen(host, port)) as sock:
        asyncio.run(serve())
