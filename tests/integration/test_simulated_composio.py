"""`csi simulate composio`: webhooks that our own verification and reading accept."""

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from csi.adapters import composio
from csi.adapters.base import RawEvent
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.cli.simulate import simulate
from csi.errors import SOME_FAILED
from csi.ingester import webhook_signature
from csi.ingester.webhook_signature import SignedMessage
from csi.pipeline.inbound_process import is_readable
from tests.fakes.background_server import serve_in_background

SECRET = "a-secret-of-composio-0123456789"
PLAYLIST = "PLBCF2DAC6FFB574DE"


@pytest.fixture
def send():
    """Runs the command with these options; its result, and the verified webhooks: message id and content."""
    received = []

    async def take(request):
        body, message = await request.body(), SignedMessage.of(request.headers)
        at = float(request.headers["webhook-timestamp"])
        refusal = webhook_signature.check_webhook([SECRET.encode()], message, body, at)
        received.append((message.id, composio.read(body)))
        return Response(status_code=401 if refusal else 202)

    with serve_in_background(Starlette(routes=[Route("/{path:path}", take, methods=["POST"])])) as url:

        def run(*options, env=SECRET):
            received.clear()
            line = ["composio", f"{url}/hooks/composio/token", "--secret-env", "COMPOSIO", *options]
            return CliRunner().invoke(simulate, line, env={"COMPOSIO": env}), list(received)

        yield run


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_an_item_of_each_version_is_read_as_an_item_of_its_playlist(send, version):
    result, (one, again) = send("--playlist", PLAYLIST, "--version", version, "--times", "2")
    assert result.exit_code == 0, result.output
    assert one == again, "a message keeps its id and content over its attempts"
    assert is_readable(one[1].item)
    item = one[1].item
    raw = RawEvent("youtube_playlist", "video_added_to_playlist", item, item["snippet"]["publishedAt"])
    event = YouTubePlaylistAdapter(config={}).normalize(raw)
    assert event.subject["playlist_id"] == PLAYLIST
    assert "dQw4w9WgXcQ" in event.dedupe_key


def test_ends_and_refusals(send):
    result, ((_, message),) = send("--end", "account")
    assert (result.exit_code, message.kind) == (0, composio.ACCOUNT_EXPIRED)
    result, ((_, message),) = send("--end", "trigger")
    assert (result.exit_code, message.kind) == (0, composio.TRIGGER_DISABLED)
    result, _ = send("--playlist", PLAYLIST, "--revoked")
    assert (result.exit_code, result.output.split()[1]) == (SOME_FAILED, "401")
    assert send("--playlist", PLAYLIST, "--end", "account")[0].exit_code == 2
    assert send("--playlist", PLAYLIST, env="")[0].exception is not None
