"""Summarise a video again by command, with another prompt, model, language or type; its transcript stays."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from csi.errors import ConfigError, CsiError
from csi.processing.providers.base import SummaryType
from csi.processing.providers.openai import OpenAISummariser, load_prompt_file
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.store import audit, jobs, videos
from csi.processing.store.db import writing

AGENT = "operator"


@dataclass(frozen=True)
class SummaryWishes:
    """None: as configured. `prompt`: the path of a prompt file."""

    prompt: str | None = None
    model: str | None = None
    language: str | None = None
    summary_type: SummaryType | None = None


def summarise_again(rt: Processing, video_id: str, wishes: SummaryWishes) -> list[StepWake]:
    """The present summary stays until the new one is written. Its calls are new ones, and are paid."""
    video = videos.find(video_id)
    if video is None:
        raise CsiError(f"there is no video {video_id}; see: csi processing list")
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video_id))
    if video.status != "summarized" or job is None:
        raise CsiError(f"{video_id} is {video.status}; only a summarized video is summarised again")
    given: dict[str, Any] = {name: value for name, value in asdict(wishes).items() if value is not None}
    if (set(given) - {"summary_type"}) and not isinstance(rt.summariser, OpenAISummariser):
        raise ConfigError(
            "another prompt, model or language needs summarization.provider: openai; the extractive summary has none"
        )
    if wishes.prompt is not None:
        path = Path(wishes.prompt).absolute()
        load_prompt_file(path)
        given["prompt"] = str(path)
    now, round_number = rt.now(), int(job.work.get("round", 0)) + 1
    with writing():
        # The specification leads from `summarized` back to `transcribed` only through `failed`; one commit.
        videos.move(videos.move(video, "failed", now), "transcribed", now)
        jobs.reopen(job, now, was="completed")
        jobs.set_work(job.id, job.work | {"round": round_number, "wishes": given})
        scope, words = rt.video_scope(AGENT, video), ", ".join(f"{name} {value}" for name, value in given.items())
        audit.write(scope, "summarise_again", "success", now, data_summary=words or "as before", user_id=rt.operator)
    return [wake_job(job.id)]
