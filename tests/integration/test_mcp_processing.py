"""Transcripts and summaries through the admin API and MCP, read from a processing that runs behind the receiver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.processing.pages import video_json
from csi.processing.pages.app import routes
from csi.receiver.app import create_app as create_receiver
from csi.receiver.settings import ReceiverSettings
from csi.web.mcp.calls import Caller, ToolCalls
from csi.web.mcp.results import ToolResult
from csi.web.shared_state import Sidecar
from tests.fakes.background_server import serve_in_background
from tests.rigs.operator import OperatorRig, operator_rig

pytestmark = pytest.mark.asyncio
READER = Caller("reader", "test", may_change=False, refusal="read-only")
PASSWORD = "dashboard-word"
WORDS = "It is said again. " * 40


@pytest.fixture
def at(tmp_path: Path) -> Iterator[OperatorRig]:
    home = tmp_path / "ingester"
    home.mkdir()
    with operator_rig(home) as built:
        yield built


@pytest.fixture
def url(open_bench: Any, tmp_path: Path) -> Iterator[str]:
    bench = open_bench()
    bench.deliver("vid00000001", subject={"title": "A title"}, text=WORDS)
    bench.drain()
    settings = ReceiverSettings(secret="csi-test-secret", db_path=tmp_path / "receiver.db")
    with serve_in_background(create_receiver(settings, extra_routes=routes(bench.rt, PASSWORD))) as base:
        yield base


def connect(at: OperatorRig, url: str | None, password: str | None = PASSWORD) -> ToolCalls:
    web = at.rt.settings.web.model_copy(update={"processing_url": url})
    named = {web.processing_password_env: SecretStr(password)} if password else {}
    secrets = at.rt.settings.secrets.model_copy(update={"named": named})
    at.rt.settings = at.rt.settings.model_copy(update={"web": web, "secrets": secrets})
    return ToolCalls(Sidecar(lambda: at.rt))


async def call(calls: ToolCalls, tool: str, **arguments: Any) -> ToolResult:
    return await calls.call(tool, arguments, READER)


async def test_summaries_and_transcripts_are_read_in_parts(
    at: OperatorRig, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_json, "MAX_TEXT", 300)
    calls = connect(at, url + "/")
    assert {"list_processed_videos", "get_processed_video"} <= {tool.name for tool in await calls.offered(READER)}
    found = (await call(calls, "list_processed_videos", status="summarized", limit=10_000_000)).data
    assert [(one["video_id"], one["title"]) for one in found["videos"]] == [("vid00000001", "A title")]
    assert (await call(calls, "get_processed_video", id="vid00000001")).data["text"]
    text, offset = "", 0
    while offset is not None:
        part = (await call(calls, "get_processed_video", id="vid00000001", text="transcript", offset=offset)).data
        text, offset = text + part["text"], part["next"]
    assert text.count("It is said again.") == 40
    assert len(text) == part["characters"]


async def test_errors_of_processing_are_sentences(at: OperatorRig, url: str, tmp_path: Path) -> None:
    calls = connect(at, url)
    assert "no video" in (await call(calls, "get_processed_video", id="../../etc")).error
    assert "must be one of" in (await call(calls, "list_processed_videos", status="wrong")).error
    refused = await call(connect(at, url, "wrong"), "list_processed_videos")
    assert (refused.status, "UA_SIGNALS_DASHBOARD_PASSWORD" in refused.error) == (502, True)
    assert "UA_SIGNALS_DASHBOARD_PASSWORD" in (await call(connect(at, url, None), "list_processed_videos")).error
    bare = ReceiverSettings(secret="csi-test-secret", db_path=tmp_path / "bare.db")
    with serve_in_background(create_receiver(bare)) as other:
        assert "serves no processing" in (await call(connect(at, other), "list_processed_videos")).error
    gone = await call(connect(at, "http://127.0.0.1:9"), "list_processed_videos")
    assert gone.status == 502
    assert PASSWORD not in gone.error + refused.error
    unset = connect(at, None)
    assert "list_processed_videos" not in {tool.name for tool in await unset.offered(READER)}
    assert (await call(unset, "list_processed_videos")).status == 404


@pytest.mark.parametrize("body", ["<html>", '{"videos": 5}'])
async def test_another_server_at_that_address_is_reported(at: OperatorRig, body: str) -> None:
    async def answer(request: Request) -> Response:
        return Response(body)

    with serve_in_background(Starlette(routes=[Route("/{path:path}", answer)])) as base:
        assert "cannot be read" in (await call(connect(at, base), "list_processed_videos")).error
