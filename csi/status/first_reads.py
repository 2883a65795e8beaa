"""What the first read of each watch found, in one sentence each."""

from collections.abc import Iterator
from dataclasses import dataclass

from csi.runtime import Runtime
from csi.store import poll_history
from csi.store.queries.first_reads import marked_as_seen, watches_since

NOUNS = {"youtube_playlist": "video", "youtube_channel_rss": "video", "reddit_subreddit": "post"}


@dataclass(frozen=True)
class FirstRead:
    """The result of the first read of a watch, or of its last one if all have failed."""

    watch_id: int
    words: str
    is_good: bool


def first_reads(rt: Runtime, since: float) -> Iterator[FirstRead]:
    """Of the active watches whose first read, or failed attempt, was after this moment."""
    for watch in watches_since(since):
        name = watch.name or watch.title or watch.ref
        if (read_at := watch.first_read_at) is not None:
            old = marked_as_seen(read_at, rt.settings.retention.dedupe_days)
            new = next((one.new_items for one in poll_history.of_watch(watch.id) if one.at == read_at), 0)
            words = f"{old:,} {NOUNS.get(watch.source, 'item')}{'' if old == 1 else 's'} remembered"
            if new:
                words += f", {'the newest' if old else 'all'} {new:,} sent"
            yield FirstRead(watch.id, f"{name}: {words}; waiting for new ones", True)
        elif watch.last_error:
            yield FirstRead(watch.id, f"{name}: {watch.last_error}", False)
