"""Transcripts as text: JSON of the usual shapes and plain files become one Transcript."""

import json
from typing import Any

from csi.processing.providers.base import ProviderError, Segment, Transcript

LATEST = 366 * 86_400_000
"""A moment in a recording, in seconds or milliseconds, that no recording reaches."""


def base_language(code: str) -> str:
    """`en` of `en-GB` and `en_us`."""
    return code.replace("_", "-").partition("-")[0].lower()


def from_file(content: str, *, is_json: bool, provider: str, source: str) -> Transcript:
    """Plain text as it is; JSON with `text`, `segments`, or YouTube's own `events`."""
    if not is_json:
        return Transcript(content.strip(), provider, source=source)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProviderError(f"{source}: not valid JSON", fault="refused", code="bad_transcript") from error
    if not isinstance(data, dict):
        raise ProviderError(f"{source}: expected a JSON object", fault="refused", code="bad_transcript")
    return from_json(data, provider=provider, source=source)


def from_json(data: dict[str, Any], *, provider: str, source: str) -> Transcript:
    segments = tuple(_timedtext(data["events"]) if "events" in data else _segments(data.get("segments")))
    text = data.get("text")
    words = text if isinstance(text, str) else " ".join(segment.text for segment in segments)
    language, confidence = data.get("language"), data.get("confidence")
    return Transcript(
        text=" ".join(words.split()) if segments and not isinstance(text, str) else words.strip(),
        provider=provider,
        language=language if isinstance(language, str) else None,
        confidence=float(confidence) if isinstance(confidence, int | float) and 0 <= confidence <= 1 else None,
        segments=segments,
        source=source,
    )


def _segments(found: Any) -> list[Segment]:
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return [Segment(_number(row.get("start")), str(row.get("text", "")), _speaker(row)) for row in rows]


def _timedtext(found: Any) -> list[Segment]:
    """YouTube's json3: events with a start in milliseconds and pieces of text."""
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    said = [(row, "".join(_pieces(row.get("segs")))) for row in rows]
    return [Segment(_number(row.get("tStartMs")) / 1000, text.strip()) for row, text in said if text.strip()]


def _pieces(found: Any) -> list[str]:
    parts = [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []
    return [str(part.get("utf8", "")) for part in parts]


def _speaker(row: dict[str, Any]) -> str | None:
    found = row.get("speaker")
    return found if isinstance(found, str) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value <= LATEST else 0.0
