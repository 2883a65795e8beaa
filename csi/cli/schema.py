"""`csi schema`: the JSON Schema of an event, of a request, and of the configuration file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from csi.adapters import registry
from csi.config import loader
from csi.ingester import event

if TYPE_CHECKING:
    from pydantic import BaseModel

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
    described = _model(what).model_json_schema()
    document: dict[str, Any] = {"$schema": DIALECT, **described, "title": TITLES[what]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _model(what: str) -> type[BaseModel]:
    if what == "config":
        return loader.file_model(registry.settings_models())
    return event.CreatorSignalEvent if what == "event" else event.CSIIngestRequest
