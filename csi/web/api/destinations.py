"""`/admin/destinations`: destinations, as `csi destinations` shows and changes them."""

import os
from typing import Any

from pydantic import Field
from starlette.responses import Response

from csi import api_models
from csi.admin import destination_settings
from csi.admin.destination_settings import SettingsInvalid
from csi.config.delivery_settings import DestinationSettings
from csi.config.durations import Seconds
from csi.doctor import sample_event_test
from csi.runtime import Runtime
from csi.status import destination_details
from csi.status.destinations import UnknownDestination, configured_name
from csi.store import managed_destinations
from csi.store.managed_destinations import ManagedDestination
from csi.web.api import delivery
from csi.web.operation_definition import OperationList, RequestModel
from csi.web.responses import HttpProblem, reply

ABSENT = {404: "No destination with this name"}
OWNED = ABSENT | {409: "It is in the configuration, or was changed meanwhile"}
KEYS: dict[str, Any] = {
    "properties": {key: {"description": field.description} for key, field in DestinationSettings.model_fields.items()},
    "additionalProperties": False,
}

OPERATIONS = OperationList()


class NewDestination(RequestModel):
    """A destination to add."""

    name: str = Field(min_length=1, max_length=64, description="Letters, digits, dots, dashes and underscores")
    settings: dict[str, Any] = Field({}, description="Keys of delivery.destinations.<name>", json_schema_extra=KEYS)
    secret: str | None = Field(
        None, min_length=1, max_length=1000, description="Secret of its signature; default: one is made, shown once"
    )
    secret_endpoint: str | None = Field(
        None, min_length=1, max_length=4000, description="Its URL, in place of `endpoint`, where that is a secret"
    )


class DestinationSettingsChange(RequestModel):
    """Settings to change."""

    settings: dict[str, Any] = Field(
        min_length=1, description="Keys of delivery.destinations.<name>; null: the default", json_schema_extra=KEYS
    )


class RemovalQuery(RequestModel):
    """Whether to change anything."""

    dry_run: bool = Field(False, description="Report how many queued events would not be sent, and change nothing")


class RotationRequest(RequestModel):
    """How long both secrets are used."""

    overlap: Seconds = Field(
        destination_settings.OVERLAP_SECONDS,
        description="How long the previous secret is used, too: 2h, 0 for not at all",
    )


# ── read ────────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add("GET", "/destinations", "listDestinations", "Every destination: state, success rate, latency of a day")
def list_destinations(rt: Runtime) -> api_models.DestinationSummaries:
    found = [api_models.DestinationSummaryJson.of(one) for one in destination_details.summaries(rt)]
    return api_models.DestinationSummaries(destinations=found)


@OPERATIONS.add(
    "GET", "/destinations/{destination}", "getDestination",
    "One destination: its settings without secrets, and its last requests", refusals=ABSENT,
)  # fmt: skip
def show(rt: Runtime, destination: str) -> api_models.DestinationDetail:
    try:
        return api_models.DestinationDetail.of(destination_details.details(rt, destination))
    except UnknownDestination as error:
        raise HttpProblem(404, str(error)) from error


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add(
    "POST", "/destinations", "addDestination", "Add a destination. A secret that is made for it is in this answer only",
    answer=api_models.DestinationChanged, refusals={409: "The name is taken, or a variable of the host is named"},
)  # fmt: skip
def add(rt: Runtime, body: NewDestination) -> Response:
    given = {"secret": body.secret, "endpoint": body.secret_endpoint}
    kept = {key: text.strip() for key, text in given.items() if text is not None}
    try:
        found = destination_settings.add(rt, body.name, _known_keys(body.settings), kept, None)
    except SettingsInvalid as error:
        raise HttpProblem(400, str(error)) from error
    return reply(_changed(body.name, *found), 201)


@OPERATIONS.add(
    "POST", "/destinations/{destination}", "setDestination", "Change settings of a destination that was added",
    refusals=OWNED,
)  # fmt: skip
def set_keys(rt: Runtime, destination: str, body: DestinationSettingsChange) -> api_models.DestinationChanged:
    row, given = managed_row(rt, destination), _known_keys(body.settings)
    try:
        return _changed(destination, *destination_settings.change(rt, row, given, None))
    except SettingsInvalid as error:
        raise HttpProblem(400, str(error)) from error


def _known_keys(given: dict[str, Any]) -> dict[str, Any]:
    if not given.keys() <= DestinationSettings.model_fields.keys():
        raise HttpProblem(400, f"settings: unknown key; known are {', '.join(DestinationSettings.model_fields)}")
    return given


def _changed(name: str, settings: DestinationSettings, secret: str | None) -> api_models.DestinationChanged:
    shown = settings.model_dump(mode="json", include=settings.model_fields_set)
    return api_models.DestinationChanged(destination=name, settings=shown, secret=secret)


def managed_row(rt: Runtime, name: str) -> ManagedDestination:
    """The row of a destination that can be changed here."""
    try:
        return destination_settings.find(rt, name, os.environ)
    except UnknownDestination as error:
        raise HttpProblem(404, str(error)) from error


@OPERATIONS.add(
    "DELETE", "/destinations/{destination}", "removeDestination",
    "Remove a destination that was added, with what is queued for it", refusals=OWNED,
)  # fmt: skip
def remove(rt: Runtime, destination: str, query: RemovalQuery) -> api_models.DestinationRemoved:
    row = managed_row(rt, destination)
    lost = managed_destinations.queued(row.name) if query.dry_run else destination_settings.remove(rt, row)
    return api_models.DestinationRemoved(destination=row.name, queued_events=lost, dry_run=query.dry_run)


@OPERATIONS.add(
    "POST", "/destinations/{destination}/rotate", "rotateDestination",
    "Make a new secret, which is in this answer only; the previous one is used beside it during the overlap",
    refusals=OWNED,
)  # fmt: skip
def rotate(rt: Runtime, destination: str, body: RotationRequest) -> api_models.SecretRotated:
    row = managed_row(rt, destination)
    try:
        secret = destination_settings.rotate(rt, row, body.overlap)
    except SettingsInvalid as error:
        raise HttpProblem(400, str(error)) from error
    until = rt.now() + body.overlap if body.overlap else None
    return api_models.SecretRotated.of(destination=row.name, secret=secret, previous_until=until)


@OPERATIONS.add(
    "POST", "/destinations/{destination}/test", "testDestination", "Send a sample event, and explain the response",
    refusals=ABSENT,
)  # fmt: skip
def test(rt: Runtime, destination: str) -> api_models.SampleTestJson:
    try:
        return api_models.SampleTestJson.of(sample_event_test.send_sample(rt, configured_name(rt, destination)))
    except UnknownDestination as error:
        raise HttpProblem(404, str(error)) from error


OPERATIONS.add(
    "POST", "/destinations/{destination}/pause", "pauseDestination",
    "Pause delivery, also across restarts, until it is resumed", refusals=ABSENT,
)(delivery.pause)  # fmt: skip
OPERATIONS.add(
    "POST", "/destinations/{destination}/resume", "resumeDestination", "Resume a delivery that an operator paused",
    refusals=ABSENT,
)(delivery.resume)  # fmt: skip
