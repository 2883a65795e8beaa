"""A source for CSI: notes that a site publishes as a JSON list."""

import json
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from csi import clock
from csi.adapters.base import (
    FoundWatch,
    Position,
    RawEvent,
    ReadResult,
    SampleAnswer,
    SourceSamples,
    WatchedSource,
)
from csi.config.durations import Seconds
from csi.config.setting_types import check_url
from csi.config.source_settings import SourceSettings, WatchSettings
from csi.errors import MalformedItem, NetError, SourceError
from csi.ingester.event import CreatorSignalEvent

END = "/notes.json"


def notes_url(text: str) -> str:
    if not check_url(text, plain_http=True).endswith(END):
        raise ValueError(f"expected a URL that ends with {END}")
    return text


class NotesWatch(WatchSettings):
    """One list of notes."""

    url: Annotated[str, AfterValidator(notes_url)] = Field(description="Address of the list")

    @property
    def ref(self) -> str:
        return self.url


class NotesSettings(SourceSettings):
    """sources.notes"""

    watch_key: ClassVar[str | None] = "lists"

    poll_interval_seconds: Seconds = 600
    lists: tuple[NotesWatch, ...] = ()


class NotesAdapter(WatchedSource):
    """The notes of one list."""

    name = "notes"
    key_stems = ("notes:",)
    Settings = NotesSettings

    def read(self, position: Position) -> ReadResult:
        try:
            answer = self.tools.web.get(position.ref)
        except NetError as error:
            raise SourceError(f"the list could not be read: {error}", kind="transient") from error
        if answer.status != 200:
            kind = {404: "missing", 401: "denied", 403: "denied", 429: "throttled"}.get(answer.status, "transient")
            raise SourceError(f"the list answered {answer.status}", kind=kind)
        notes = (answer.json_object() or {}).get("notes")
        if not isinstance(notes, list):
            raise SourceError("the answer is not a list of notes", kind="malformed")
        site = urlsplit(position.ref).netloc
        return ReadResult(
            items=tuple(
                RawEvent(self.name, "note_published", {"site": site, "note": note}, str(note.get("published", "")))
                for note in notes
                if isinstance(note, dict)
            )
        )

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        site, note = raw.payload.get("site"), raw.payload.get("note")
        if not isinstance(site, str) or not isinstance(note, dict) or not isinstance(note.get("id"), str | int):
            raise MalformedItem("the note has no id")
        if not isinstance(note.get("title"), str):
            raise MalformedItem("the note has no title")
        try:
            published = clock.normalize(str(note["published"]))
        except (KeyError, ValueError) as error:
            raise MalformedItem("the note has no time") from error
        key = f"notes:{site}:{note['id']}"
        return CreatorSignalEvent(
            event_id=f"src:{key}",
            dedupe_key=key[:500],
            source=self.name,
            event_type=raw.event_type,
            occurred_at=published,
            received_at=published,
            subject={"platform": "notes", "url": note.get("url"), "title": note["title"]},
            routing={},
        )

    def host(self, ref: str, via: str = "feed") -> str:
        return urlsplit(ref).netloc

    def discover(self, text: str) -> FoundWatch | None:
        """`csi sources add URL` recognizes the address of a list."""
        is_ours = text.startswith(("http://", "https://")) and text.endswith(END)
        return FoundWatch(text) if is_ours else None

    @classmethod
    def samples(cls) -> SourceSamples:
        url = f"https://notes.example.org{END}"
        notes = [
            {"id": 2, "title": "Second", "url": "https://notes.example.org/2", "published": "2026-02-21T12:00:00Z"},
            {"id": 1, "title": "First", "url": "https://notes.example.org/1", "published": "2026-02-20T12:00:00Z"},
        ]
        answer = SampleAnswer(json.dumps({"notes": notes}).encode())
        return SourceSamples({"lists": [{"url": url}]}, {url: answer})
