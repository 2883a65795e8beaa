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
    model: type[BaseModel] = event.CSIIngestRequest
    if what == "config":
        model = loader.file_model(registry.settings_models())
    elif what == "event":
        model = event.CreatorSignalEvent
    document: dict[str, Any] = {"$schema": DIALECT, **model.model_json_schema(), "title": TITLES[what]}
    return json.dumps(document, indent=2, ensure_ascii=False)
