"""`csi adapters`: the sources that are installed, built in or as plugins, and the conformance suite."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from csi import api_models, testing
from csi.adapters import registry
from csi.cli.command import json_option
from csi.cli.output import echo_json, echo_table, plain, safe
from csi.config import problems
from csi.errors import SOME_FAILED, CsiError

if TYPE_CHECKING:
    from csi.adapters.registry import InstalledAdapter

BUILT_IN = "built in"


class UnknownAdapter(CsiError):
    """No source of this name is installed."""


@click.group()
def adapters() -> None:
    """List, show and test the installed sources.

    A source is built in, or comes with a package that has an entry point in the group csi.sources. `csi docs adapters`
    shows how to write one.
    """


@adapters.command("list")
@json_option
def list_adapters(as_json: bool) -> None:
    """List the sources, where each comes from, and why one cannot be used. Exit code 5 when one cannot."""
    found = [*registry.installed().values(), *registry.name_clashes()]
    if as_json:
        echo_json({"adapters": [api_models.AdapterJson.of(one) for one in found]})
    else:
        rows = [[one.name, one.package or BUILT_IN, safe(one.fault or "usable")] for one in found]
        echo_table(("NAME", "FROM", "STATE"), rows)
    if any(one.fault for one in found):
        sys.exit(SOME_FAILED)


@adapters.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a source: where it comes from, its keys in the configuration, its watches, its dedupe keys."""
    found = _installed(name)
    shown = api_models.AdapterDetail.of_adapter(found)
    if as_json:
        echo_json(shown)
        return
    click.echo(f"{shown.name}: {shown.path}, {shown.package or BUILT_IN}")
    if shown.fault:
        click.echo(f"cannot be used: {safe(shown.fault)}")
        return
    click.echo(f"watches      {shown.watch_key or 'none: the source is one watch'}")
    click.echo(f"dedupe keys  {', '.join(shown.key_stems)}…")
    click.echo(f"samples      {'yes' if shown.has_samples else 'no: csi adapters test cannot read it'}\n")
    rows = [[f"sources.{shown.name}.{one.key}", one.default, one.description] for one in shown.settings]
    echo_table(("KEY", "DEFAULT", "MEANING"), rows)


@adapters.command()
@click.argument("name")
@json_option
def test(name: str, as_json: bool) -> None:
    """Run the conformance suite on a source. Exit code 1 when a check fails.

    Reads the source's own samples; nothing is contacted and nothing is stored.
    """
    found = _installed(name)
    if found.adapter is None:
        raise UnknownAdapter(f"{name} cannot be used: {found.fault}")
    results = testing.examine(found.adapter)
    failed = [one for one in results if one.faults]
    if as_json:
        echo_json(api_models.ConformanceReport.of_results(name, results))
    else:
        for one in results:
            click.echo(f"{'FAIL' if one.faults else 'ok  '}  {one.name:<14} {one.what}")
            for fault in one.faults:
                click.echo(f"      {plain(fault)}")
        click.echo(f"{len(results) - len(failed)} of {len(results)} checks passed")
    if failed:
        sys.exit(1)


def _installed(name: str) -> InstalledAdapter:
    known: dict[str, Any] = registry.installed()
    if name not in known:
        raise UnknownAdapter(problems.unknown_name(f"source {plain(name, 40)!r}", name, known))
    found: InstalledAdapter = known[name]
    return found
