"""Videos of processing as JSON, as the receiver's side of the wire reports them."""

from typing import Literal

from csi.api_models.base import ApiModel, ForeignText


class ProcessedVideoJson(ApiModel):
    """A video on its way from signal to summary."""

    video_id: str
    title: ForeignText
    url: ForeignText
    published_at: ForeignText
    channel_id: ForeignText
    channel_title: ForeignText
    duration_sec: float | None = None
    status: str
    updated_at: str


class ProcessedVideoList(ApiModel):
    """A page of videos, the last updated first. `next` null: there are no more."""

    videos: list[ProcessedVideoJson]
    next: int | None


class ProcessedVideoDetail(ProcessedVideoJson):
    """A video with a part of its summary or transcript. `text` null: there is none yet. `next` null: the text ends."""

    kind: Literal["summary", "transcript"]
    text: ForeignText
    characters: int
    next: int | None
