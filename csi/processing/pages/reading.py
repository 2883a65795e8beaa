"""Texts as safe HTML: summaries and digests from Markdown, transcripts with links into the video."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markupsafe import Markup

from csi.logs import redact

MAX_SEGMENTS = 3_000
SPAN = 8
"""Lines of captions that a sentence may spread over."""
FEWEST_WORDS = 3
SAME_WORDS = 0.7
_WORD = re.compile(r"\w{4,}")
# HTML in the text stays text, and a link may not be `javascript:`: the texts are those of models and strangers.
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable("image")


def render_markdown(text: str) -> Markup:
    return Markup(MARKDOWN.render(redact(text)))  # noqa: S704 html is off


def with_times(markdown: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """The list items of a summary, each with a link to the place of the video whose words it has."""
    said = [_words(str(line["text"])) for line in lines]

    def timed(item: str) -> str:
        place = _place_of(_words(item), said) if item.startswith("- ") else None
        return item if place is None else f"{item} [{lines[place]['at']}]({lines[place]['link']})"

    return "\n".join(map(timed, markdown.split("\n")))


def _place_of(wanted: set[str], said: Sequence[set[str]]) -> int | None:
    """The line with which the `SPAN` lines begin that have most of these words. None: no place has enough of them."""
    if len(wanted) < FEWEST_WORDS:
        return None
    found = [
        (len(wanted & set[str]().union(*said[start : start + SPAN])), len(wanted & said[start]), -start)
        for start in range(len(said))
    ]
    common, _, start = max(found, default=(0, 0, 0))
    return -start if common >= SAME_WORDS * len(wanted) else None


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


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
