"""`csi examples`: the example files that the package contains, for an installation without a checkout."""

from __future__ import annotations

from pathlib import Path

import click

from csi.cli.output import echo_lines
from csi.errors import CsiError

PACKAGED = Path(__file__).resolve().parents[1] / "examples"
"""Where the wheel has the files (`force-include` in pyproject.toml)."""
CHECKOUT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = {
    "config.yaml": "config/config.example.yaml",
    "env": "config/env.example",
    "processing.yaml": "config/processing.example.yaml",
    "csi.rules.yml": "ops/prometheus/csi.rules.yml",
    "csi-processing.rules.yml": "ops/prometheus/csi-processing.rules.yml",
    "scrape.yml": "ops/prometheus/scrape.example.yml",
    "grafana.json": "ops/grafana/csi.json",
}
UNITS = "systemd"


@click.command()
@click.argument("name", required=False)
def examples(name: str | None) -> None:
    """Print an example file: configuration, alert rules, dashboard, systemd units. Without NAME list them."""
    found = files()
    if name is None:
        echo_lines(found)
        return
    if name not in found:
        raise CsiError(f"there is no example {name[:40]!r}; there are: {', '.join(found)}")
    click.echo(found[name].read_text(encoding="utf-8"), nl=False)


def files() -> dict[str, Path]:
    """By the name that the command takes. No other file is ever opened."""
    if PACKAGED.is_dir():
        named, units = {name: PACKAGED / name for name in IN_CHECKOUT}, PACKAGED / UNITS
    else:
        named, units = {name: CHECKOUT / path for name, path in IN_CHECKOUT.items()}, CHECKOUT / "ops" / UNITS
    return named | {f"{UNITS}/{path.name}": path for path in sorted(units.iterdir())}
