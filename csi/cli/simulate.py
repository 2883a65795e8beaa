"""`csi simulate`: a stand-in for an outside service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import clock
from csi.config import durations
from csi.config.secrets import read_variable
from csi.errors import SOME_FAILED, MissingSetting
from csi.simulator.feeds.documents import RENDERERS

if TYPE_CHECKING:  # the simulators are loaded when one is run: `--help` needs none of them
    from starlette.applications import Starlette

    from csi.simulator.composio import EndKind, Version


class DurationOrSeconds(click.ParamType[float]):
    """`100ms`, `2s`; a bare number is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        try:
            return float(text) if text.replace(".", "", 1).isdecimal() else durations.parse_duration(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _speed(text: str) -> float:
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1_000_000:
        raise click.BadParameter(f"{text[:20]!r} is not a speed; write it as 3600x, at most 1000000x")
    return speed


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
@click.option(
    "--speed",
    default="1x",
    show_default=True,
    callback=lambda ctx, param, value: _speed(value),
    help="How fast views and subscribers grow: 3600x is an hour in a second.",
)
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
    speed: float,
    ledger: Path | None,
    seconds: float | None,
) -> None:
    """Run a simulated YouTube: feeds and Data API, with quota, faults and a control API under /sim."""
    from csi.simulator.youtube import app, content, world

    simulated = world.World(seed)
    simulated.growth.set_speed(speed, clock.now())
    ids = content.populate(simulated, channels=channels, playlists=playlists, videos=videos, at=clock.now())
    options = app.YouTubeOptions(
        api_key=api_key, quota=quota, faults=faults, latency=latency, ledger_path=ledger, seed=seed
    )
    new_items = content.Traffic(simulated, ids, seed)

    def announce(base: str) -> Starlette:
        facts = {
            "base_url": base,
            "api_base_url": base + app.API_PATH,
            "feed_url_template": f"{base}{app.FEED_PATH}?channel_id={{channel_id}}",
            "channels": ids.channels,
            "playlists": ids.playlists,
        }
        _announce("YouTube", base, facts)
        key = f"={app.API_KEY}" if api_key == app.API_KEY else ", the key of --api-key"
        click.echo(f"to point CSI at it, in the environment YOUTUBE_API_KEY{key}, and in the configuration:")
        click.echo(f'  sources.youtube_channel_rss.feed_url_template: "{facts["feed_url_template"]}"')
        click.echo(f'  sources.youtube_playlist.api_base_url: "{facts["api_base_url"]}"')
        return app.create_app(simulated, options)

    _serve(host, port, seconds, announce, lambda: content.generate_traffic(new_items, rate, clock.now))


@simulate.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(list(RENDERERS)),
    help="Kind of a feed; may be given several times. Default: one of each.",
)
@click.option("--each", default=1, show_default=True, type=click.IntRange(1, 1000), help="Feeds of each kind.")
@click.option(
    "--posts", default=5, show_default=True, type=click.IntRange(0, 1000), help="Posts in each, at the start."
)
@click.option("--rate", default=0.0, show_default=True, type=click.FloatRange(0), help="New posts per second.")
@click.option("--max-age", default=0, show_default=True, type=click.IntRange(0), help="Cache-Control of the feeds.")
@click.option("--hub", "with_hub", is_flag=True, help="Name a WebSub hub in every feed, and push new posts.")
@click.option("--faults", default="", help="What is wrong with feeds, as in rss-1:gone,atom-1:moved.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
def feeds(
    host: str,
    port: int,
    kinds: tuple[str, ...],
    each: int,
    posts: int,
    rate: float,
    max_age: int,
    with_hub: bool,
    faults: str,
    seconds: float | None,
) -> None:
    """Run simulated feeds of every kind, with pages, redirects, faults, a WebSub hub and a control API under /sim."""
    from csi.simulator.feeds.app import feeds_app, publish_steadily
    from csi.simulator.feeds.site import FeedSite
    from csi.simulator.hub import SimulatedHub

    site = FeedSite("", max_age=max_age, with_hub=with_hub)
    hub = SimulatedHub() if with_hub else None
    names = {f"{kind}-{number}": kind for kind in kinds or RENDERERS for number in range(1, each + 1)}

    def announce(base: str) -> Starlette:
        site.base = base
        for name, kind in names.items():
            site.add(name, kind, posts)
        site.set_faults(faults)
        _announce("feeds", base, {"base_url": base, "feeds": {name: site.address(name) for name in names}})
        return feeds_app(site, hub)

    _serve(host, port, seconds, announce, lambda: publish_steadily(site, hub, rate))


@simulate.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--subreddits", default=5, show_default=True, type=click.IntRange(1, 500), help="Number of subreddits.")
@click.option("--posts", default=10, show_default=True, type=click.IntRange(0), help="Posts in each, at the start.")
@click.option("--rate", default=0.0, show_default=True, type=click.FloatRange(0), help="New posts per second.")
@click.option(
    "--per-minute", default=1, show_default=True, type=click.IntRange(0), help="Anonymous requests a minute; 0: any."
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
def reddit(
    host: str, port: int, subreddits: int, posts: int, rate: float, per_minute: int, seconds: float | None
) -> None:
    """Run a simulated Reddit: feeds, API and access tokens, with Reddit's limits and a control API under /sim."""
    from csi.simulator.reddit.app import TOKEN_PATH, post_steadily, reddit_app
    from csi.simulator.reddit.site import RedditSite

    site = RedditSite(per_minute=per_minute or None)
    names = [f"sub_{number:02}" for number in range(1, subreddits + 1)]
    site.add(*names)
    for name in names:
        for place in range(posts):
            site.publish(name, at=site.now() - 600.0 * (posts - place))

    def announce(base: str) -> Starlette:
        _announce("Reddit", base, {"base_url": base, "token_url": base + TOKEN_PATH, "subreddits": names})
        return reddit_app(site)

    _serve(host, port, seconds, announce, lambda: post_steadily(site, names, rate))


@simulate.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
def hub(host: str, port: int, seconds: float | None) -> None:
    """Run a simulated WebSub hub, as YouTube's is, with faults and a control API under /sim."""
    from csi.simulator.hub import HUB_PATH, SimulatedHub

    simulated = SimulatedHub()

    def announce(base: str) -> Starlette:
        _announce("hub", base, {"base_url": base, "hub_url": base + HUB_PATH})
        return simulated.app()

    _serve(host, port, seconds, announce)


@simulate.command()
@click.argument("url")
@click.option("--secret-env", required=True, help="Variable with the secret, as given to csi inbound add.")
@click.option("--playlist", default="", help="Send a new item of this playlist.")
@click.option("--video", default="dQw4w9WgXcQ", show_default=True, help="The video of that item.")
@click.option("--title", default="A new item", show_default=True, help="Its title.")
@click.option("--version", type=click.Choice(["V1", "V2", "V3"]), default="V3", show_default=True)
@click.option("--end", "ended", type=click.Choice(["account", "trigger"]), help="Say that it has ended instead.")
@click.option("--times", default=1, show_default=True, type=click.IntRange(1, 100), help="Repeat the same message.")
@click.option("--revoked", is_flag=True, help="Sign with another secret.")
def composio(
    url: str, secret_env: str, playlist: str, video: str, title: str, version: Version, ended: str | None,
    times: int, revoked: bool,
) -> None:  # fmt: skip
    """Send a webhook to an address of csi inbound, as Composio does. Exit code 5 when it is refused."""
    from csi.simulator import composio as simulated

    if bool(playlist) == bool(ended):
        raise click.UsageError("say either --playlist or --end")
    secret = read_variable(secret_env, os.environ)
    if not secret:
        raise MissingSetting(f"{secret_env} is not set: give the secret that the sender was added with")
    sender = simulated.ComposioSender(url, secrets.token_hex(16) if revoked else secret)
    message_id, now = f"msg_{secrets.token_hex(8)}", clock.now()
    if ended:
        kinds: dict[str, EndKind] = {
            "account": "composio.connected_account.expired", "trigger": "composio.trigger.disabled"
        }  # fmt: skip
        body = simulated.end_envelope(kinds[ended], message_id, now)
    else:
        item = simulated.playlist_item(playlist, video, title, f"UC{playlist[-22:].rjust(22, '0')}", now)
        data = {"event_type": "new_playlist_item", "item": item}
        body = simulated.envelope(data, message_id, now, version=version, trigger=simulated.PLAYLIST_TRIGGER)
    answers = [sender.send(message_id, body, attempt) for attempt in range(1, times + 1)]
    for answer in answers:
        click.echo(f"{message_id}  {answer or 'no answer'}")
    if any(answer not in (200, 202) for answer in answers):
        sys.exit(SOME_FAILED)


def _serve(
    host: str,
    port: int,
    seconds: float | None,
    announce: Callable[[str], Starlette],
    background: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or the end of `seconds`. `announce` gets the address and makes the app."""
    from csi.simulator import http_server

    with contextlib.closing(http_server.listen(host, port)) as sock:
        server = http_server.make_server(announce(http_server.base_url(sock)))

        async def serve() -> None:
            loop, stop = asyncio.get_running_loop(), partial(setattr, server, "should_exit", True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            if seconds:
                loop.call_later(seconds, stop)
            await http_server.serve_until_stopped(server, sock, background)

        asyncio.run(serve())


def _announce(what: str, base: str, facts: dict[str, Any]) -> None:
    """Two lines: a sentence, then the addresses and ids as JSON for a parent process."""
    click.echo(f"simulated {what} listening on {base}")
    click.echo(json.dumps(facts))
