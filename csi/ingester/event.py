"""The contract models: CreatorSignalEvent, and the request that carries a batch of them (PRD §7, §8)."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from csi import clock

CONTRACT_VERSION = "1.0"
MAX_EVENTS_PER_REQUEST = 100

Timestamp = Annotated[str, Field(examples=["2026-02-22T12:00:00Z"])]

_EXAMPLE: dict[str, Any] = {
    "event_id": "src:yt:playlist:dQw4w9WgXcQ:PLabc123:1771761600",
    "dedupe_key": "youtube:video:dQw4w9WgXcQ:PLabc123",
    "source": "youtube_playlist",
    "event_type": "video_added_to_playlist",
    "occurred_at": "2026-02-22T12:00:00Z",
    "received_at": "2026-02-22T12:05:23Z",
    "emitted_at": "2026-02-22T12:05:25Z",
    "subject": {
        "platform": "youtube",
        "video_id": "dQw4w9WgXcQ",
        "channel_id": "UCuAXFkgsw1L7xaCfnd5JJOw",
        "url": "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
        "title": "Never Gonna Give You Up",
        "published_at": "2009-10-25T08:57:31Z",
        "playlist_id": "PLabc123",
        "playlist_position": 25,
    },
    "routing": {"pipeline": "youtube_tutorial_explainer", "priority": "urgent", "tags": ["ai", "tutorial"]},
    "metadata": {"source_adapter": "youtube_playlist_api_v1", "source_ref": "PLabc123"},
    "contract_version": CONTRACT_VERSION,
}


class CreatorSignalEvent(BaseModel):
    """Universal creator signal event contract v1."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    event_id: str = Field(..., description="Unique event identifier")
    dedupe_key: str = Field(..., description="Deduplication key")
    source: str = Field(..., description="Source adapter name")
    event_type: str = Field(..., description="Event type identifier")

    occurred_at: Timestamp = Field(..., description="ISO 8601 UTC when event happened")
    received_at: Timestamp = Field(..., description="ISO 8601 UTC when CSI ingested")
    emitted_at: Timestamp | None = Field(None, description="ISO 8601 UTC when sent to UA")

    subject: dict[str, Any] = Field(..., description="Platform-specific event data")
    routing: dict[str, Any] = Field(..., description="Routing hints for UA")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Event metadata")
    raw_ref: str | None = Field(None, description="Reference to raw payload")
    contract_version: str = Field(CONTRACT_VERSION, description="Version of this contract")

    @field_validator("occurred_at", "received_at", "emitted_at")
    @classmethod
    def _in_the_contracts_form(cls, value: str | None) -> str | None:
        return None if value is None else clock.normalize(value)


class CSIIngestRequest(BaseModel):
    """The body of one POST to the receiver."""

    csi_version: str = Field(..., description="CSI version")
    csi_instance_id: str = Field(..., description="CSI instance identifier")
    batch_id: str = Field(..., description="Batch identifier for tracing")
    events: list[CreatorSignalEvent] = Field(..., max_length=MAX_EVENTS_PER_REQUEST)
