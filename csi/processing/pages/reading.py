"""Texts as safe HTML: summaries and digests from Markdown, transcripts with links into the video."""

import json
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markupsafe import Markup

from csi.logs import redact

MAX_SEGMENTS = 3_000
# HTML in the text stays text, and a link may not be `javascript:`: the texts are those of models and strangers.
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable("image")


def render_markdown(text: str) -> Markup:
    return Markup(MARKDOWN.render(redact(text)))  # noqa: S704 html is off


def transcript_lines(video_id: str, text: str | None) -> list[dict[str, Any]]:
    """The segments of transcript.json with a link to their second. Empty: it has none."""
    try:
        segments = json.loads(text or "{}").get("segments")
    except (ValueError, AttributeError):
        return []
    lines = []
    for segment in segments[:MAX_SEGMENTS] if isinstance(segments, list) else []:
        seconds = int(segment["start"])
        minutes, rest = divmod(seconds, 60)
        link = f"https://www.youtube.com/watch?v={quote(video_id, safe='')}&t={seconds}s"
        lines.append(
            {"at": f"{minutes:02d}:{rest:02d}", "link": link} | {n: segment.get(n) for n in ("speaker", "text")}
        )
    return lines
