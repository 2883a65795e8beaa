"""`/admin/processing`: transcripts and summaries, read from processing over HTTP where it runs."""

import base64
import re
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import Field, ValidationError

from csi.api_models import ApiModel, ProcessedVideoDetail, ProcessedVideoList
from csi.errors import NetError
from csi.net import HttpLimits
from csi.runtime import Runtime
from csi.web.operation_definition import OperationList, RequestModel, Whole
from csi.web.responses import HttpProblem

LIMITS = HttpLimits(total=5.0, connect=2.0, max_body=2 * 1024 * 1024, max_redirects=0)
NOT_SET = "processing is not connected: set web.processing_url to the address of the receiver that serves it"
NO_PATH = "not_found"
"""What a receiver answers for a path that it does not serve."""
REFUSALS = {409: "web.processing_url is not set", 502: "Processing did not answer"}

Model = TypeVar("Model", bound=ApiModel)

OPERATIONS = OperationList()


class ProcessedVideoQuery(RequestModel):
    """Which videos of processing."""

    limit: Whole = Field(50, ge=1, le=100, description="Rows per page")
    offset: Whole = Field(0, ge=0, le=10**9, description="The `next` of the previous page")
    status: str | None = Field(None, max_length=40, description="Only in this status, such as summarized or failed")


class ProcessedTextQuery(RequestModel):
    """Which text, and where to begin."""

    text: Literal["summary", "transcript"] = Field("summary", description="Which text of the video")
    offset: Whole = Field(0, ge=0, le=10**9, description="The `next` of the previous part of a long text")


@OPERATIONS.add(
    "GET", "/processing/videos", "listProcessedVideos",
    "Videos that processing transcribes and summarizes, the last updated first", is_slow=True, refusals=REFUSALS,
)  # fmt: skip
def list_videos(rt: Runtime, query: ProcessedVideoQuery) -> ProcessedVideoList:
    return _checked(ProcessedVideoList, _fetch(rt, "", query.model_dump(exclude_none=True)))


@OPERATIONS.add(
    "GET", "/processing/videos/{id}", "getProcessedVideo", "The summary or transcript of a video, by its id",
    is_slow=True, refusals=REFUSALS | {404: "No video with this id"},
)  # fmt: skip
def show_video(rt: Runtime, id: str, query: ProcessedTextQuery) -> ProcessedVideoDetail:
    if not re.fullmatch(r"[\w-]{1,128}", id, re.ASCII):
        raise HttpProblem(404, "there is no video with this id")
    return _checked(ProcessedVideoDetail, _fetch(rt, f"/{id}", query.model_dump()))


def _fetch(rt: Runtime, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
    web = rt.settings.web
    if web.processing_url is None:
        raise HttpProblem(409, NOT_SET)
    password = rt.settings.secrets.named.get(web.processing_password_env)
    headers = {"Accept": "application/json"}
    if password is not None:
        word = base64.b64encode(f"csi:{password.get_secret_value()}".encode()).decode()
        headers["Authorization"] = f"Basic {word}"
    answer = rt.net.get(
        f"{web.processing_url.rstrip('/')}/processing/videos{path}?{urlencode(parameters)}",
        headers=headers,
        limits=LIMITS,
    )
    found = answer.json_object() or {}
    if answer.status == 200:
        return found
    if answer.status == 404 and found.get("error") == NO_PATH:
        raise HttpProblem(502, "the receiver there serves no processing; check web.processing_url")
    if answer.status in (400, 404) and isinstance(found.get("error"), str):
        raise HttpProblem(answer.status, str(found["error"])[:200])
    if answer.status in (401, 403):
        raise HttpProblem(
            502,
            f"processing refused the password: set {web.processing_password_env} for this process to the one that the "
            "receiver has in UA_SIGNALS_DASHBOARD_PASSWORD",
        )
    raise NetError(f"processing answered {answer.status}; check web.processing_url", kind="status")


def _checked(model: type[Model], found: dict[str, Any]) -> Model:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise HttpProblem(
            502, "the answer of processing cannot be read; check that web.processing_url is it"
        ) from error
