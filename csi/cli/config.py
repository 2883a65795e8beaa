"""`csi config`: check, show and describe the configuration. `csi schema`: the JSON Schemas."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pydantic
import yaml

from csi import api_models, net, runtime
from csi.adapters import reddit_subreddit, registry
from csi.adapters.reddit import settings as reddit_settings
from csi.admin import watches
from csi.cli import envfile
from csi.cli.command import audited, config_and_json_options, dry_run_option, installed
from csi.cli.output import echo_json, plain, plural
from csi.config import delivery_settings, loader, secrets, variables
from csi.errors import ConfigError
from csi.ingester import event
from csi.pipeline import schedule
from csi.status import notification_problems

if TYPE_CHECKING:
    from csi.config.loader import LoadedConfig
    from csi.config.yaml_reader import KeyPath

    Origin = Callable[[KeyPath], str] | None
    from pydantic import BaseModel


@click.group()
def config() -> None:
    """Check, show and describe the configuration.

    The environment takes precedence over the file, the file over the defaults.
    """


def reddit_rate(rt: runtime.Runtime) -> tuple[str, bool] | None:
    """What rate is possible for the configured subreddits, and whether no posts are missed. None: there are none."""
    block = rt.settings.sources.get("reddit_subreddit")
    if block is None or not block.enabled or not block.watches:
        return None
    assert isinstance(block, reddit_settings.RedditSettings)
    spacing = rt.pacer.spacing(rt.adapter("reddit_subreddit").paced_as(""))
    plan = reddit_subreddit.configured_plan(block, spacing)
    return f"sources.reddit_subreddit: {reddit_subreddit.sentence(plan, spacing)}", plan.is_safe


@config.command()
@config_and_json_options
@click.option("--start", is_flag=True, help="Check only what the services refuse to start with; exit code 3 or 4.")
def check(config_path: Path | None, as_json: bool, start: bool) -> None:
    """Check whether the configuration is valid; each problem is one line on stderr, exit code 3."""
    loaded = _read(config_path)
    if start:
        loader.require_delivery(loaded.settings)
        loader.require_queue(loaded.settings)
        for warning in (*loaded.faults, *loaded.warnings):
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{loaded.path}: worker and sidecar start with it")
        return
    if loaded.faults:
        raise ConfigError("\n".join(loaded.faults))
    settings = loaded.settings
    # Adapters report which key they lack; that needs neither database nor network.
    rt = runtime.Runtime(settings, net.Net())
    configured = (one for source in rt.enabled_sources() for one in schedule.configured_watches(rt, source))
    warnings = [*loaded.warnings, *schedule.keyless(rt, [(one.source, one.via) for one in configured])]
    notes = list[str]()
    if (rate := reddit_rate(rt)) is not None:
        text, is_safe = rate
        (notes if is_safe else warnings).append(text)
    if settings.features.delivery:
        warnings += _unset_receiver(settings.delivery)
    unset = (settings.secrets.notify_urls, settings.secrets.heartbeat_url) == (None, None)
    if settings.notify.enabled and unset:
        warnings.append(f"notify: {notification_problems.NO_TARGET}; {notification_problems.SET_TARGET}")
    if (env_file := click.get_current_context().find_root().params.get("env_file")) is not None:
        warnings += envfile.ambiguous_lines(env_file)
    running = [source for source in settings.sources.values() if source.enabled]
    count = sum(len(source.watches) for source in running)
    if as_json:
        counts = {"path": str(loaded.path), "sources": len(running), "watches": count}
        echo_json({"ok": True, **counts, "warnings": warnings, "notes": notes})
        return
    counted = f"{plural(len(running), 'enabled source')}, {count} watch{'' if count == 1 else 'es'}"
    click.echo(f"{loaded.path}: valid; {counted}, {plural(len(settings.route_profiles), 'route profile')}")
    for note in notes:
        click.echo(f"note: {note}")
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


@config.command()
@config_and_json_options
@click.option("--origin", "with_origin", is_flag=True, help="Show where each value comes from.")
def show(config_path: Path | None, as_json: bool, with_origin: bool) -> None:
    """Print the effective configuration; secrets appear as ******** (set) or null."""
    loaded = _read(config_path)
    values = effective(loaded)
    origin = loaded.origin if with_origin else None
    if as_json:
        click.echo(json.dumps(_with_origins(values, origin, ()), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_yaml_lines(values, origin, ())))


@config.command()
@config_and_json_options
@dry_run_option
def accept(config_path: Path | None, as_json: bool, dry_run: bool) -> None:
    """Accept that the configuration removes most of the watches.

    A reload or start that would remove more than half of them keeps them polled until this command.
    """
    with installed(config_path) as rt:
        watches.sync_without_worker(rt)
        held = audited(
            rt,
            "csi config accept",
            lambda: watches.accept_removal(rt, dry_run=dry_run),
            lambda held: f"{len(held)} watches removed",
            dry_run=dry_run,
        )
    if as_json:
        echo_json(api_models.RemovalReport.of_watches(held, dry_run=dry_run))
        return
    if not held:
        click.echo("no watch is held: the configuration removes none, or has been accepted")
        return
    for one in held:
        click.echo(f"{'would be removed' if dry_run else 'removed'}  {one.source}  {plain(one.label)}")
    if not dry_run:
        click.echo(f"{len(held)} watch{'' if len(held) == 1 else 'es'} removed")


@config.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(schema_text("config"))


def effective(loaded: LoadedConfig) -> dict[str, Any]:
    """All settings as plain data without secret values; the secrets' variable names come last."""
    shown: dict[str, Any] = _plain(loaded.settings.model_dump())
    for key in ("database", "queue"):
        shown["csi"][key] = shown["csi"][key] and secrets.hide_password(shown["csi"][key])
    named = {name for block in loaded.settings.sources.values() for name in loader.variable_names(block)}
    known = [*variables.SECRETS, *sorted(named - set(variables.SECRETS))]
    shown = {"csi": shown["csi"], "sources": shown["sources"], **shown}
    return {**shown, "secrets": {name: secrets.MASK if name in loaded.draft.secrets else None for name in known}}


def _read(path: Path | None) -> LoadedConfig:
    return loader.read_config(path, env=os.environ, sources=registry.settings_models())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case pydantic.SecretStr():
            return secrets.MASK
        case Path():
            return str(value)
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _with_origins(value: Any, origin: Origin, path: KeyPath) -> Any:
    if origin is None:
        return value
    if _is_leaf(value):
        return {"value": value, "origin": _origin_of(origin, path, value)}
    return {key: _with_origins(inner, origin, (*path, key)) for key, inner in _items(value)}


def _yaml_lines(value: Any, origin: Origin, path: KeyPath) -> Iterator[str]:
    """Block style written by hand: no YAML writer puts a comment behind each value."""
    for key, inner in _items(value):
        inner_path = (*path, key)
        lead = "- " if isinstance(key, int) else f"{_scalar(key)}:"
        if _is_leaf(inner):
            note = f"  # {_origin_of(origin, inner_path, inner)}" if origin else ""
            yield f"{lead.strip()} {_scalar(inner)}{note}"
            continue
        lines = [f"  {line}" for line in _yaml_lines(inner, origin, inner_path)]
        yield from [f"- {lines[0].lstrip()}", *lines[1:]] if isinstance(key, int) else [lead, *lines]


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)


def _is_leaf(value: Any) -> bool:
    """A scalar, an empty block, or a list of scalars: printed on one line."""
    if isinstance(value, list):
        return not any(isinstance(inner, dict) for inner in value)
    return not isinstance(value, dict) or not value


def _origin_of(origin: Callable[[KeyPath], str], path: KeyPath, value: Any) -> str:
    if path[0] == "secrets":
        return f"environment variable {path[1]}" if value else "not set"
    return origin(path)


def _scalar(value: Any) -> str:
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style=style, width=math.inf, allow_unicode=style is None
    )
    return text.removesuffix("...\n").strip()


DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLES = {
    "event": "CSI creator signal event, contract 1.0",
    "request": "CSI ingest request: one signed batch of events",
    "config": "CSI configuration file",
}


@click.command()
@click.argument("what", type=click.Choice(list(TITLES)))
def schema(what: str) -> None:
    """Print the JSON Schema (draft 2020-12) of an event, a request or the config."""
    click.echo(schema_text(what))


def schema_text(what: str) -> str:
    model: type[BaseModel] = event.CSIIngestRequest
    if what == "config":
        model = loader.file_model(registry.settings_models())
    elif what == "event":
        model = event.CreatorSignalEvent
    document: dict[str, Any] = {"$schema": DIALECT, **model.model_json_schema(), "title": TITLES[what]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _unset_receiver(delivery: delivery_settings.DeliverySettings) -> list[str]:
    """Without CSI_UA_ENDPOINT, named destinations get everything. Those that were added by command are not in here."""
    if delivery.destinations and not delivery.ua_endpoint:
        return []
    required = (("ua_endpoint", "CSI_UA_ENDPOINT"), ("shared_secret", "CSI_UA_SHARED_SECRET"))
    missing = [pair for pair in required if getattr(delivery, pair[0]) is None]
    lost = "nothing is delivered to it" if delivery.destinations else "nothing can be delivered"
    return [f"delivery.{key}: not set, so {lost}; set {name}" for key, name in missing]
