"""Full-text search over titles, summaries and transcripts."""

import re
from dataclasses import dataclass

from csi.processing.store.db import changed, fetch, is_postgres, run

PIECE = 40_000
"""Characters of a row: a word that the cut divides is not found, which is one in some eight thousand."""
_WORD = re.compile(r"[\w'’-]+")


@dataclass(frozen=True)
class FoundText:
    """A video whose texts have all the words, and the place where they are."""

    video_id: str
    kind: str
    excerpt: str


def due(limit: int) -> list[str]:
    """Videos whose texts are new since they were indexed."""
    sql = """SELECT v.video_id FROM videos v LEFT JOIN indexed_videos i ON i.video_id = v.video_id
             WHERE v.status IN ('transcribed', 'summarized') AND (i.updated_at IS NULL OR i.updated_at <> v.updated_at)
             LIMIT ?"""
    return [row[0] for row in fetch(sql, limit)]


def put(video_id: str, texts: dict[str, str]) -> None:
    """Replace the texts of a video. The caller opens the transaction."""
    run("DELETE FROM texts WHERE video_id = ?", video_id)
    for kind, text in texts.items():
        for start in range(0, len(text), PIECE):
            run(
                "INSERT INTO texts (video_id, kind, body) VALUES (?, ?, ?)", video_id, kind, text[start : start + PIECE]
            )
    sql = """INSERT INTO indexed_videos (video_id, updated_at)
             SELECT video_id, updated_at FROM videos WHERE video_id = ?
             ON CONFLICT (video_id) DO UPDATE SET updated_at = excluded.updated_at"""
    changed(sql, video_id)


def search(words: str, limit: int) -> list[FoundText]:
    """The best matches first; every word must be in one text. Nothing in `words` is an operator."""
    known = _WORD.findall(words)[:20]
    if not known:
        return []
    if is_postgres():
        form = "StartSel='', StopSel='', MaxWords=30, MinWords=12".replace("'", '"')
        sql = f"""SELECT video_id, kind, ts_headline('simple', body, q, '{form}')
                 FROM texts, plainto_tsquery('simple', ?) q WHERE words @@ q ORDER BY ts_rank(words, q) DESC LIMIT ?"""
        rows = fetch(sql, " ".join(known), limit)
    else:
        quoted = " ".join(f'"{word}"' for word in known)
        sql = """SELECT video_id, kind, snippet(texts, 2, '', '', '…', 24) FROM texts
                 WHERE texts MATCH ? ORDER BY rank LIMIT ?"""
        rows = fetch(sql, quoted, limit)
    best: dict[str, FoundText] = {}
    for row in rows:
        best.setdefault(row[0], FoundText(*row))
    return list(best.values())
