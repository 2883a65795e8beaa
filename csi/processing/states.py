"""Which status may follow which (spec 001): one table for the code, the database, the docs and the tests."""

from typing import Literal, get_args

from csi.errors import CsiError

Status = Literal["discovered", "transcription_queued", "transcribed", "summarized", "failed", "skipped"]
Stage = Literal["scraping", "transcription", "summarization", "completed"]

STATUSES: tuple[Status, ...] = get_args(Status)
STAGES: tuple[Stage, ...] = get_args(Stage)

FIRST: Status = "discovered"

TRANSITIONS: dict[Status, tuple[Status, ...]] = {
    "discovered": ("transcription_queued", "failed"),
    "transcription_queued": ("transcribed", "failed"),
    "transcribed": ("summarized", "failed"),
    "summarized": ("failed",),
    # Down from `failed`: given up, or tried again from where the work resumes.
    "failed": ("skipped", "transcription_queued", "transcribed"),
    "skipped": (),
}

STAGE_OF: dict[Status, Stage] = {
    "discovered": "scraping",
    "transcription_queued": "transcription",
    "transcribed": "summarization",
    "summarized": "completed",
    "skipped": "completed",
}
"""`failed` keeps the stage in which it failed."""

RESUMES_AS: dict[Stage, Status] = {
    "scraping": "transcription_queued",
    "transcription": "transcription_queued",
    "summarization": "transcribed",
    "completed": "transcribed",
}
"""A retry of a video that failed in this stage."""


class IllegalMove(CsiError):
    """A status that goes where the specification does not let it."""


def check_move(old: Status, new: Status) -> None:
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(TRANSITIONS[old]) or "nothing"
        raise IllegalMove(f"a video cannot go from {old} to {new}; allowed from there: {allowed}")


def stage_after(old_stage: Stage, new: Status) -> Stage:
    return STAGE_OF.get(new, old_stage)


def legal_moves() -> list[tuple[Status, Status]]:
    return [(old, new) for old, following in TRANSITIONS.items() for new in following]


def legal_pairs() -> list[tuple[Status, Stage]]:
    """Which stage goes with which status; `failed` goes with each."""
    return [*STAGE_OF.items(), *(("failed", stage) for stage in STAGES)]
