"""Read what an operator names: a video's URL or id, or rows of a CSV file or a published spreadsheet. Pure."""

import csv
import io
import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from csi import clock
from csi.errors import CsiError
from csi.processing.sanitize import plain_line

MANUAL = "manual"
"""The pipeline of videos that `csi processing add` names, which needs no route."""
MAX_BYTES = 8 * 1024 * 1024
MAX_ROWS = 10_000
MAX_CELL = 20_000
_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_HOSTS = ("youtube.com", "youtu.be", "youtube-nocookie.com")
_PATHS = ("shorts", "live", "embed", "v")
COLUMNS = {
    "video": ("video_id", "video id", "videoid", "video", "url", "link", "video url", "youtube url", "id"),
    "title": ("title", "video title", "name"),
    "channel_id": ("channel_id", "channel id"),
    "channel_title": ("channel_title", "channel title", "channel", "creator"),
    "published_at": ("published_at", "published at", "published", "date"),
    "tags": ("tags", "tag"),
    "priority": ("priority",),
}
"""The names of columns, in any case; other columns are ignored. Without a header the first column is the video."""


class UnreadableList(CsiError):
    """The whole file is unusable."""

    exit_code = 2


@dataclass(frozen=True)
class ListedVideo:
    """One row: the video, or what is wrong with the row."""

    line: int
    text: str
    video_id: str | None = None
    title: str | None = None
    channel_id: str | None = None
    channel_title: str | None = None
    published_at: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 5
    error: str | None = None


def video_id_of(text: str) -> str | None:
    """Of an id or of a URL of YouTube; None: it is neither."""
    typed = text.strip().strip("<>\"'")
    if _ID.fullmatch(typed):
        return typed
    if not typed or len(typed) > 2_000 or not typed.isprintable():
        return None
    try:
        parts = urlsplit(typed if "://" in typed else f"https://{typed}")
        host = (parts.hostname or "").removeprefix("www.").removeprefix("m.").removeprefix("music.")
        query = parse_qs(parts.query, max_num_fields=50)
    except ValueError:
        return None
    if host not in _HOSTS or parts.scheme not in ("http", "https"):
        return None
    steps = [step for step in parts.path.split("/") if step]
    if host == "youtu.be":
        found = steps[0] if steps else ""
    elif steps[:1] == ["watch"]:
        found = query.get("v", [""])[0]
    else:
        found = steps[1] if len(steps) > 1 and steps[0] in _PATHS else ""
    return found if _ID.fullmatch(found) else None


def read_list(content: bytes) -> list[ListedVideo]:
    """Every row in order, bad ones with their error. UnreadableList when the whole file is unusable."""
    if len(content) > MAX_BYTES:
        raise UnreadableList(f"the list is larger than {MAX_BYTES // 1024**2} MB; split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableList("the list is not UTF-8 text; export it as CSV (UTF-8)") from error
    if text.lstrip()[:1] == "<":
        raise UnreadableList("this is a web page and not CSV; publish the sheet to the web as CSV, and use that link")
    # Rows with their line numbers; empty ones and comments are left out.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=text.split("\n", 1)[0].count))
    rows = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise UnreadableList(f"line {reader.line_num} is not CSV: {error}") from error
    if not rows:
        raise UnreadableList("the list is empty")
    names = [cell.strip().lower() for cell in rows[0][1]]
    found = {name: min(map(names.index, set(words) & set(names)), default=-1) for name, words in COLUMNS.items()}
    # Where each column is; empty when the first row is no header.
    places = {name: place for name, place in found.items() if place >= 0} if found["video"] >= 0 else {}
    body = rows[1:] if places else rows
    if len(body) > MAX_ROWS:
        raise UnreadableList(f"the list has {len(body):,} rows; at most {MAX_ROWS:,} are read at once: split it")
    return [_listed(line, cells, places or {"video": 0}) for line, cells in body]


def _listed(line: int, cells: list[str], places: dict[str, int]) -> ListedVideo:
    def cell(name: str) -> str:
        place = places.get(name, -1)
        return cells[place].strip()[:MAX_CELL] if 0 <= place < len(cells) else ""

    text = cell("video")
    video_id = video_id_of(text)
    if video_id is None:
        what = f"{plain_line(text, 80)!r} names no video of YouTube" if text else "the row has no video"
        return ListedVideo(line, text[:200], error=f"{what}; write its URL or its id")
    published, priority = cell("published_at"), cell("priority")
    try:
        moment = clock.normalize(f"{published}T00:00:00Z" if len(published) == 10 else published) if published else None
    except ValueError:
        return ListedVideo(line, text[:200], video_id, error=f"{plain_line(published, 40)!r} is not a time (published)")
    if priority and (not priority.isascii() or not priority.isdigit() or not 1 <= int(priority[:4]) <= 10):
        return ListedVideo(line, text[:200], video_id, error="priority is a whole number from 1 to 10")
    tags = tuple(name for tag in re.split(r"[,;]", cell("tags"))[:50] if (name := plain_line(tag, 200)))
    return ListedVideo(
        line,
        text[:200],
        video_id,
        plain_line(cell("title")) or None,
        plain_line(cell("channel_id"), 200) or None,
        plain_line(cell("channel_title"), 200) or None,
        moment,
        tags,
        int(priority) if priority else 5,
    )
