"""BACKFILL_CHANNEL: fetch the channel, then its uploads page by page with their videos and first statistics.

`progress` holds the token of the next page. A crash costs the current page, which is fetched again.
"""

from csi.adapters.youtube.api import ApiPage, DataApi, is_readable
from csi.adapters.youtube.api_errors import LIST_CHANGED
from csi.catalog import capture, data_api
from csi.catalog.api_response_fields import listed_video
from csi.errors import SourceError
from csi.jobs.run_job import JobDone, StepDone
from csi.runtime import Runtime
from csi.store.catalog import channels, videos
from csi.store.catalog.jobs import CatalogJob

MOST_RESTARTS = 3
"""When a page token expires or the list changes, the backfill restarts at the first page; stored videos stay. The limit
keeps a token that never works from spending the day's units."""


def backfill(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    if job.channel_id is None:
        raise SourceError("the job names no channel", kind="denied")
    api = data_api.open_api(rt, job)
    if "uploads" in job.progress:
        return _read_page(rt, api, job, job.channel_id)
    facts = data_api.read_channels(api, [job.channel_id]).get(job.channel_id)
    if facts is None:
        raise SourceError("YouTube does not show this channel", kind="missing")
    uploads = facts.uploads_playlist_id or f"UU{job.channel_id[2:]}"
    progress = {"uploads": uploads, "token": None, "pages": 0, "videos": 0, "missing": 0, "restarts": 0}
    return StepDone(progress, lambda: capture.record_channel(facts, rt.now()))


def _read_page(rt: Runtime, api: DataApi, job: CatalogJob, channel_id: str) -> StepDone | JobDone:
    done, cap = job.progress, job.payload.get("videos") or rt.settings.catalog.backfill_videos
    page = _page(api, done["uploads"], done["token"])
    if page is None:
        if done["restarts"] >= MOST_RESTARTS:
            raise SourceError(LIST_CHANGED)
        restart = {"token": None, "pages": 0, "videos": 0, "missing": 0, "restarts": done["restarts"] + 1}
        return StepDone(done | restart)
    items = [facts for item in page.items if is_readable(item) and (facts := listed_video(item, channel_id))]
    room = None if cap is None else max(int(cap) - done["videos"] - done["missing"], 0)
    listed = list({facts.id: facts for facts in items}.values())[:room]
    ids = [facts.id for facts in listed]
    known = videos.known(ids)
    shown = data_api.read_videos(api, ids) if ids else {}
    found = [facts for facts in shown.values() if facts.channel_id == channel_id]
    found_ids = {facts.id for facts in found}
    unseen = [facts for facts in listed if facts.id not in found_ids]
    counts = {
        "pages": done["pages"] + 1,
        "videos": done["videos"] + len(found),
        "missing": done["missing"] + len(unseen),
    }
    is_last = page.next is None or (job.payload.get("until_known") and len(known) == len(listed))
    is_last = is_last or (cap is not None and counts["videos"] + counts["missing"] >= int(cap))

    def save() -> None:
        capture.record_videos(found, rt.now())
        capture.record_unseen(unseen, rt.now())
        if is_last:
            channels.note_backfilled(channel_id, rt.now())

    return JobDone(counts, save) if is_last else StepDone(done | counts | {"token": page.next}, save)


def _page(api: DataApi, uploads: str, token: str | None) -> ApiPage | None:
    """One page of the uploads list. None when the token has expired."""
    try:
        return api.items(uploads, token) or ApiPage(())
    except SourceError as error:
        # The API answers "not found" for the uploads list of a channel without videos: the list is empty.
        if error.kind == "missing" and token is None:
            return ApiPage(())
        if token is not None and str(error) == LIST_CHANGED:
            return None
        raise
