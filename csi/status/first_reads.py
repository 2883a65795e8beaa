"""What the first read of each watch found, in one sentence each."""

from collections.abc import Iterator
from dataclasses import dataclass

from csi.runtime import Runtime
from csi.store import poll_history
from csi.store.models import Watch
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
        if watch.first_read_at is not None:
            yield FirstRead(watch.id, f"{name}: {_found(rt, watch, watch.first_read_at)}", True)
        elif watch.last_error:
            yield FirstRead(watch.id, f"{name}: {watch.last_error}", False)


def _found(rt: Runtime, watch: Watch, moment: float) -> str:
    old = marked_as_seen(moment, rt.settings.retention.dedupe_days)
    sent = next((one.new_items for one in poll_history.of_watch(watch.id) if one.at == moment), 0)
    noun = NOUNS.get(watch.source, "item")
    words = [f"{old:,} {noun}{'' if old == 1 else 's'} remembered"]
    if sent:
        words.append(f"{'the newest' if old else 'all'} {sent:,} sent")
    return f"{', '.join(words)}; waiting for new ones"
