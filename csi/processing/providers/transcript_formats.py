"""Parse transcripts: plain text, JSON with segments, and YouTube's json3 become a Transcript."""

import json
from typing import Any

from csi.processing.providers.base import ProviderError, Segment, Transcript

MAX_OFFSET = 366 * 86_400_000
"""The largest accepted offset, in seconds or milliseconds: one year in milliseconds."""


def base_language(code: str) -> str:
    """`en` for `en-GB` and `en_us`."""
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


def _segments(value: Any) -> list[Segment]:
    found = []
    for row in _dicts(value):
        speaker = row.get("speaker")
        found.append(
            Segment(_offset(row.get("start")), str(row.get("text", "")), speaker if isinstance(speaker, str) else None)
        )
    return found


def _timedtext(value: Any) -> list[Segment]:
    """YouTube's json3: events with a start in milliseconds and pieces of text."""
    found = []
    for row in _dicts(value):
        text = "".join(str(piece.get("utf8", "")) for piece in _dicts(row.get("segs"))).strip()
        if text:
            found.append(Segment(_offset(row.get("tStartMs")) / 1000, text))
    return found


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _offset(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value <= MAX_OFFSET else 0.0
