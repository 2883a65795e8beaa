"""When a job is tried again (spec 001): a first run and one retry for each wait, then the dead letter. Pure."""

from dataclasses import dataclass
from typing import Literal

from csi.processing.documents import FailureType
from csi.processing.providers.base import ProviderError

TRANSCRIPTION_WAITS = (60.0, 120.0, 240.0)
SUMMARIZATION_WAITS = (30.0, 60.0, 120.0)
API_WAITS = (10.0, 20.0, 40.0, 80.0, 160.0)
"""One call to an API is repeated after these waits before the job's attempt counts as failed."""

MAX_CRASHES = 3


@dataclass(frozen=True)
class CallAgain:
    """The same call once more, at this time; no attempt of the job is used."""

    at: float


@dataclass(frozen=True)
class TryAgain:
    """The next attempt of the job."""

    at: float


@dataclass(frozen=True)
class NextProvider:
    """This one has nothing; ask the next."""


@dataclass(frozen=True)
class Skip:
    """There is nothing to be had from anybody."""


@dataclass(frozen=True)
class Dead:
    """A person must look at it."""

    failure_type: FailureType
    can_retry: bool


Verdict = CallAgain | TryAgain | NextProvider | Skip | Dead
Kind = Literal["transcription", "summarization"]


def judge(
    kind: Kind,
    error: ProviderError,
    *,
    attempts: int,
    api_tries: int,
    more_providers: bool,
    now: float,
    answered: bool = False,
) -> Verdict:
    """What follows from a failure. `answered`: a paid answer that is no summary; asking again may give a better one."""
    if error.fault in ("absent", "refused") and more_providers:
        return NextProvider()
    if error.fault == "absent":
        return Skip()
    if error.fault == "quota":
        return Dead("quota_exceeded", can_retry=True)
    if error.fault == "refused" and not answered:
        return Dead("fatal_error", can_retry=False)
    if not answered and api_tries < len(API_WAITS):
        return CallAgain(now + max(API_WAITS[api_tries], error.retry_after or 0))
    waits = TRANSCRIPTION_WAITS if kind == "transcription" else SUMMARIZATION_WAITS
    if attempts < len(waits):
        return TryAgain(now + max(waits[attempts], error.retry_after or 0))
    return Dead("max_retries", can_retry=True)
