"""The retry policy (spec 001): a first attempt, one retry after each wait, then a dead letter. Pure."""

from dataclasses import dataclass
from typing import Literal

from csi.processing.collection_models import FailureType
from csi.processing.providers.base import ProviderError

TRANSCRIPTION_WAITS = (60.0, 120.0, 240.0)
SUMMARIZATION_WAITS = (30.0, 60.0, 120.0)
API_WAITS = (10.0, 20.0, 40.0, 80.0, 160.0)
"""An API call is repeated after these waits before the job's attempt counts as failed."""

MAX_CRASHES = 3


@dataclass(frozen=True)
class RepeatCall:
    """Repeat the same call at this time; no attempt of the job is used."""

    at: float


@dataclass(frozen=True)
class NextAttempt:
    """The next attempt of the job at this time."""

    at: float


@dataclass(frozen=True)
class NextProvider:
    """This provider has no transcript; call the next one."""


@dataclass(frozen=True)
class SkipJob:
    """No provider has a transcript."""


@dataclass(frozen=True)
class DeadLetterJob:
    """The job becomes a dead letter."""

    failure_type: FailureType
    can_retry: bool


FailureVerdict = RepeatCall | NextAttempt | NextProvider | SkipJob | DeadLetterJob


def judge(
    collection: Literal["jobs/transcription", "jobs/summarization"],
    error: ProviderError,
    *,
    attempts: int,
    api_tries: int,
    more_providers: bool,
    now: float,
    answered: bool = False,
) -> FailureVerdict:
    """The verdict on a failure. `answered`: the model's paid answer is no summary; another answer may be one."""
    if error.fault in ("absent", "refused") and more_providers:
        return NextProvider()
    if error.fault == "absent":
        return SkipJob()
    if error.fault == "quota":
        return DeadLetterJob("quota_exceeded", can_retry=True)
    if error.fault == "refused" and not answered:
        return DeadLetterJob("fatal_error", can_retry=False)
    if not answered and api_tries < len(API_WAITS):
        return RepeatCall(now + max(API_WAITS[api_tries], error.retry_after or 0))
    waits = TRANSCRIPTION_WAITS if collection == "jobs/transcription" else SUMMARIZATION_WAITS
    if attempts < len(waits):
        return NextAttempt(now + max(waits[attempts], error.retry_after or 0))
    return DeadLetterJob("max_retries", can_retry=True)
