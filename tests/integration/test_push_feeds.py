"""Push of any feed with rel=hub, samples of real pushes, hooks at an address of their own, and the commands."""

import json

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from csi.adapters.feed import FeedAdapter
from csi.adapters.youtube import push_document
from csi.cli.main import cli
from csi.config.settings import InboundSettings, Settings
from csi.main import listen_for_hooks
from csi.net import Net
from csi.simulator.hub import SimulatedHub, removal_push, video_push
from csi.store import db, subscriptions
from csi.web.app import create_app
from tests.fakes.background_server import serve_in_background
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.processes import free_port
from tests.rigs.push import push_rig

FEED = """<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Blog</title>
<id>urn:blog</id><updated>2026-02-22T12:00:00Z</updated>{links}{entries}</feed>"""
ENTRY = "<entry><id>urn:{0}</id><title>Post {0}</title><link href='https://example.org/{0}'/></entry>"


def feed(posts: list[str], links: str = "") -> bytes:
    return FEED.format(links=links, entries="".join(map(ENTRY.format, posts))).encode()


@pytest.mark.parametrize("by_header", [False, True])
def test_a_feed_that_names_a_hub_is_subscribed_and_a_push_brings_its_post(tmp_path, clock, by_header):
    hub, posts, box = SimulatedHub(now=clock), ["one"], {}

    async def show(request: Request) -> Response:
        here = f"{request.base_url}blog"
        links = f'<link rel="hub" href="{request.base_url}hub"/><link rel="self" href="{here}"/>'
        header = {"Link": f'<{request.base_url}hub>; rel="hub", <{here}>; rel="self"'}
        return Response(feed(posts, "" if by_header else links), headers=header if by_header else {})

    sidecar = create_app(lambda: box["rt"])
    served = Starlette(routes=[Route("/blog", show), *hub.app().routes, Mount("/", sidecar)])
    with db.connection(), ScriptedReceiver(now=clock) as ua, serve_in_background(served) as url:
        source = {"feeds": [{"url": f"{url}/blog"}], "push": {"callback_url": f"{url}/hooks"}, "priority": "urgent"}
        line = InProcessPipeline(
            *(tmp_path, clock, ua.url),
            sources={"feed": source},
            net={"allowed_private_hosts": [url.removeprefix("http://")]},
        )
        box["rt"] = line.rt
        line.run()
        line.wait(60, step=10)
        _wait_for(lambda: hub.verified)
        assert subscriptions.every()[0].topic == f"{url}/blog"
        posts.insert(0, "two")
        assert hub.push(f"{url}/blog", feed(["two"])) == [202]
        line.wait(5)
        titles = [event["subject"]["title"] for request in ua.requests for event in request.events]
        assert titles == ["Post two"]
        assert subscriptions.every()[0].confirmed == 1
        hub.net.close()
        line.rt.net.close()
        line.rt.web.close()


def _wait_for(condition, seconds: float = 10.0) -> None:
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_real_pushes_are_read(corpus):
    now = 1_800_000_000.0
    folder = corpus / "websub"
    edit = push_document.read((folder / "notification_edit_next_day_2017.xml").read_bytes(), now)
    assert edit.keys == ("youtube:video:KtMyGttbyq0",)
    two = push_document.read((folder / "notification_two_entries_placeholders.xml").read_bytes(), now)
    assert two.keys == ("youtube:video:VIDEO_ID",)
    grave = (folder / "deleted_entry_2018_FRAGMENT.xml").read_text()
    whole = (
        f'<feed xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0">{grave}</feed>'
    )
    assert push_document.read(whole.encode(), now).removed == {"youtube:video:xScSTh-gHpQ": 1532627016.0}


def test_simulated_pushes_have_the_shape_of_real_ones():
    assert push_document.read(video_push("UC1", "abcdefghijk", 1000.0), 2000.0).keys == ("youtube:video:abcdefghijk",)
    assert push_document.read(removal_push("UC1", "abcdefghijk", 1000.0), 2000.0).removed == {
        "youtube:video:abcdefghijk": 1000.0
    }


def test_a_hub_is_remembered_while_the_feed_does_not_change():
    adapter = FeedAdapter({"push": {"callback_url": "https://csi.example.org/hooks"}})
    topic = adapter.push_topic("https://e.org/f", {"hub": "https://hub.example", "topic": "https://e.org/f"})
    assert topic is not None
    assert topic.is_foreign
    assert adapter.push_topic("https://e.org/f", {}) is None


def test_hooks_at_a_port_of_their_own_serve_nothing_else(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig, Net() as net:
        path = rig.sender("n8n").url.removeprefix(rig.url)
        port = free_port()
        app = create_app(lambda: rig.rt, hook_port=port)
        with serve_in_background(app) as main_url, serve_in_background(app, port=port) as hook_url:
            statuses = [
                (net.post(f"{url}{path}", body=b"{}", headers={}).status, net.get(f"{url}/healthz").status)
                for url in (main_url, hook_url)
            ]
        assert statuses == [(404, 200), (401, 404)]


def test_the_address_of_hooks_is_opened_only_where_it_is_configured():
    own = InboundSettings(enabled=True, host="127.0.0.1", port=0)
    with listen_for_hooks(Settings(inbound=own)) as door:
        assert door.getsockname()[0] == "127.0.0.1"
    assert listen_for_hooks(Settings(inbound=own.model_copy(update={"enabled": False}))) is None
    assert listen_for_hooks(Settings(inbound=InboundSettings(enabled=True))) is None


def test_the_commands_add_list_test_rotate_and_remove(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()

        def csi(*arguments: str):
            return CliRunner().invoke(cli, [*arguments, "--config", str(tmp_path / "config.yaml")])

        made = csi("inbound", "add", "n8n", "--json")
        access = json.loads(made.output)
        assert (access["url"].startswith(f"{rig.url}/hooks/n8n/"), access["secret"][:6]) == (True, "whsec_")
        shown = csi("inbound", "list")
        assert "n8n" in shown.output
        assert "verified" in shown.output
        assert access["secret"] not in shown.output + csi("inbound", "list", "--json").output
        assert csi("inbound", "test", "n8n").output.startswith("curl ")
        assert json.loads(csi("inbound", "rotate", "n8n", "--json").output)["secret"] != access["secret"]
        assert csi("inbound", "messages").output == "no messages\n"
        assert csi("inbound", "remove", "n8n").exit_code == 0
        assert csi("inbound", "remove", "n8n").exit_code == 1
        assert "there is no sender" in str(csi("inbound", "test", "n8n").exception)
