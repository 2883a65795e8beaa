"""The status transitions of a video (spec 001): one table for the code, the database, the docs and the tests."""

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
    # From `failed`: given up, or retried from the status in which the work resumes.
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
"""The status that a video gets when it is retried after it failed in this stage."""


class IllegalTransition(CsiError):
    """A status change that the specification does not allow, or whose old status is no longer current."""


def check_transition(old: Status, new: Status) -> None:
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(TRANSITIONS[old]) or "nothing"
        raise IllegalTransition(f"a video cannot change from {old} to {new}; allowed: {allowed}")


def legal_transitions() -> list[tuple[Status, Status]]:
    return [(old, new) for old, following in TRANSITIONS.items() for new in following]


def legal_pairs() -> list[tuple[Status, Stage]]:
    """The allowed pairs of status and stage; `failed` goes with every stage."""
    return [*STAGE_OF.items(), *(("failed", stage) for stage in STAGES)]
