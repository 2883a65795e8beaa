"""MCP Events: agents subscribe a callback by the SDK's client; the worker delivers to it, signed, until it expires."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from csi.admin import event_subscriptions
from csi.config import destination_secrets
from csi.emitter import http
from csi.store import db, managed_destinations
from csi.store.queries import audit_rows
from csi.web.app import create_app
from csi.web.mcp import event_requests
from tests.fakes.background_server import serve_in_background
from tests.rigs.in_process import LedgerPipeline, ledger_pipeline

pytestmark = pytest.mark.asyncio
TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
NAME = "signal.created"


def key(letter: str = "k") -> str:
    return "whsec_" + base64.b64encode(letter.encode() * 32).decode()


@dataclass
class CallbackServer:
    """A receiver of an agent: it echoes challenges, and keeps what it was sent."""

    url: str = ""
    echoes: bool = True
    status: int = 200
    moved_to: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        self.got.append((dict(request.headers), body))
        if self.moved_to:
            return RedirectResponse(self.moved_to, 307)
        given = json.loads(body)
        echo = {"challenge": given["challenge"]} if self.echoes and "challenge" in given else {"html": "<b>no</b>"}
        return JSONResponse(echo, self.status)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [found for _, body in self.got if "type" not in (found := json.loads(body))]

    def is_signed(self, number: int, secret: str) -> bool:
        headers, body = self.got[number]
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        expected = Webhook(secret).sign(headers["webhook-id"], at, body.decode())
        return expected in headers["webhook-signature"].split(" ")


@contextmanager
def callback_server() -> Iterator[CallbackServer]:
    server = CallbackServer()
    with serve_in_background(Starlette(routes=[Route("/in/{path:path}", server.answer, methods=["POST"])])) as base:
        server.url = f"{base}/in/a-capability-of-the-agent"
        yield server


@pytest.fixture
def callback() -> Iterator[CallbackServer]:
    with callback_server() as server:
        yield server


@pytest.fixture
def line(tmp_path: Path) -> Iterator[LedgerPipeline]:
    with ledger_pipeline(
        tmp_path,
        features={"mcp_events": True},
        net={"allowed_private_hosts": ["127.0.0.1"]},
        secrets={"CSI_ADMIN_TOKEN": TOKEN, "CSI_ADMIN_READ_TOKEN": READ_TOKEN},
    ) as built:
        yield built
        built.rt.web.close()


@pytest.fixture
def url(line: LedgerPipeline) -> Iterator[str]:
    with serve_in_background(create_app(lambda: line.rt)) as base:
        yield f"{base}/mcp"


def switch(line: LedgerPipeline, *, events: bool) -> None:
    features = line.rt.settings.features.model_copy(update={"mcp_events": events})
    line.rt.settings = line.rt.settings.model_copy(update={"features": features})


@asynccontextmanager
async def agent(url: str, token: str = READ_TOKEN, **options: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as asking,
        Client(streamable_http_client(url, http_client=asking), **options) as client,
    ):
        yield client


async def ask(client: Client, method: str, params: Any = None) -> dict[str, Any]:
    request = types.Request[Any, Any](method=f"events/{method}", params=params)
    return await client.session.send_request(request, TypeAdapter(dict[str, Any]))


def wanted(callback: str, secret: str | None = None, **more: Any) -> dict[str, Any]:
    delivery = {"mode": "webhook", "url": callback, "secret": secret or key()}
    return {"name": NAME, "arguments": {}, "delivery": delivery, **more}


async def refused(client: Client, method: str, params: Any = None) -> MCPError:
    with pytest.raises(MCPError) as raised:
        await ask(client, method, params)
    return raised.value


# ── the whole way ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_subscribes_and_each_event_arrives_once_and_signed(
    line: LedgerPipeline, url: str, callback: CallbackServer, mode: str
) -> None:
    async with agent(url, mode=mode) as client:
        (offered,) = (await ask(client, "list"))["events"]
        granted = await ask(client, "subscribe", wanted(callback.url, ttlMs=600_000))
    assert (offered["name"], offered["delivery"]) == (NAME, ["webhook"])
    assert {"sources", "tags", "watches"} <= offered["inputSchema"]["properties"].keys()
    assert "event_id" in offered["payloadSchema"]["properties"]
    assert (granted["cursor"], granted["truncated"]) == (None, False)
    assert datetime.fromisoformat(granted["refreshBefore"]).timestamp() == line.clock() + 600
    challenge, _ = callback.got[0]
    assert challenge["webhook-id"].startswith("msg_verification_")
    line.run()
    line.publish(3, spacing=1)
    line.wait(30)
    assert line.states() == {"delivered": 3}
    assert len(callback.events) == 3
    ids = [event_id for (event_id,) in db.fetch("SELECT event_id FROM events")]
    assert sorted(event["eventId"] for event in callback.events) == sorted(ids)
    for number, (headers, body) in enumerate(callback.got):
        assert headers["x-mcp-subscription-id"] == granted["id"]
        assert callback.is_signed(number, key())
        assert "authorization" not in headers
        event = json.loads(body)
        assert number == 0 or headers["webhook-id"] == event["eventId"] == event["data"]["event_id"]
        assert number == 0 or event.keys() == {"eventId", "name", "timestamp", "data", "cursor"}
    assert len(line.ua.requests) >= 1, "the PRD's receiver gets its events all the same"


async def test_a_subscription_is_refreshed_expires_by_itself_and_leaves_nothing(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    async with agent(url) as client:
        first = await ask(client, "subscribe", wanted(callback.url, ttlMs=600_000))
        line.wait(500, step=100)
        again = await ask(client, "subscribe", wanted(callback.url, ttlMs=600_000))
        assert (again["id"], again["deliveryStatus"]["active"]) == (first["id"], True)
        assert len(callback.got) == 1, "a live subscription is not verified again"
        line.wait(500, step=100)
        line.publish(1)
        line.wait(20)
        assert len(callback.events) == 1
        line.wait(200, step=50)
        (name,) = db.fetch("SELECT name FROM managed_destinations") or [("gone",)]
        line.publish(1)
        line.wait(40, step=5)
    assert len(callback.events) == 1
    assert name not in line.rt.destinations
    assert (db.number("SELECT COUNT(*) FROM managed_destinations"), line.waiting()) == (0, 0)
    assert line.states() == {"delivered": 2}
    assert destination_secrets.read(line.rt.settings.csi.state_dir) == {}


async def test_a_new_key_signs_at_once_and_the_old_one_beside_it(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    async with agent(url) as client:
        await ask(client, "subscribe", wanted(callback.url))
        line.run()
        await ask(client, "subscribe", wanted(callback.url, key("n")))
        line.publish(1)
        line.wait(20)
        assert callback.is_signed(-1, key())
        assert callback.is_signed(-1, key("n"))
        line.wait(700, step=100)
        line.publish(1)
        line.wait(20)
    assert len(callback.events) == 2
    assert callback.is_signed(-1, key("n"))
    assert not callback.is_signed(-1, key())


async def test_filters_are_the_agents_and_each_token_ends_only_its_own(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    elsewhere = wanted(callback.url, arguments={"sources": ["reddit"]})
    everything = wanted(callback.url)
    async with agent(url) as reader, agent(url, TOKEN) as admin:
        await ask(reader, "subscribe", elsewhere)
        kept = await ask(reader, "subscribe", everything)
        error = await refused(admin, "unsubscribe", everything)
        assert (error.code, error.data) == (-32011, {"kind": "subscription"})
        line.run()
        line.publish(1)
        line.wait(20)
        assert [headers["x-mcp-subscription-id"] for headers, _ in callback.got[2:]] == [kept["id"]]
        assert (await ask(reader, "unsubscribe", everything))["id"] == kept["id"]
        line.publish(1)
        line.wait(40)
        assert len(callback.events) == 1
        assert (await refused(reader, "unsubscribe", everything)).code == -32011
    assert line.states() == {"delivered": 2}


async def test_switched_off_the_methods_are_unknown_and_subscriptions_end(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    async with agent(url) as client:
        await ask(client, "subscribe", wanted(callback.url))
        switch(line, events=False)
        for method in ("list", "subscribe", "unsubscribe"):
            assert (await refused(client, method, wanted(callback.url))).code == types.METHOD_NOT_FOUND
        assert (await client.list_tools()).tools
    line.run()
    line.publish(1)
    line.wait(60, step=5)
    assert (callback.events, line.states()) == ([], {"delivered": 1})
    assert db.number("SELECT COUNT(*) FROM managed_destinations") == 0


async def test_an_event_over_256_kib_is_a_dead_letter_that_says_so_and_the_others_arrive(
    line: LedgerPipeline, url: str, callback: CallbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MCP_EVENT_BYTES", 1_300)
    async with agent(url) as client:
        await ask(client, "subscribe", wanted(callback.url))
    line.run()
    line.publish(1, title="x" * 4_000)
    line.publish(1, title="small")
    line.wait(30)
    ((reason, destination),) = db.fetch("SELECT error_reason, destination FROM dead_letter")
    assert "MCP Events allows 1,300 in one request" in reason
    assert destination.startswith("mcp-")
    assert [event["data"]["subject"]["title"] for event in callback.events] == ["small"]


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"name": "nothing"}, -32011, "events/list has signal.created"),
        ({"name": 5}, -32602, "name"),
        ({"arguments": {"colour": "red"}}, -32602, "arguments.colour"),
        ({"arguments": {"tags": "ai"}}, -32602, "arguments.tags"),
        ({"arguments": {"tags": ["x"] * 51}}, -32602, "arguments.tags"),
        ({"arguments": {"tiers": ["never"]}}, -32602, "arguments.tiers"),
        ({"ttlMs": -1}, -32602, "ttlMs"),
        ({"ttlMs": "soon"}, -32602, "ttlMs"),
        ({"delivery": None}, -32602, "delivery"),
        ({"delivery": {"url": "https://example.org/"}}, -32602, "delivery.secret"),
        ({"mode": "push"}, -32014, "only webhook"),
        ({"secret": "hand-picked-secret"}, -32602, "delivery.secret: expected whsec_"),
        ({"secret": "whsec_c2hvcnQ="}, -32602, "delivery.secret: expected whsec_"),
        ({"url": "http://example.org/in"}, -32602, "delivery.url"),
        ({"url": "ftp://example.org/in"}, -32602, "delivery.url"),
        ({"url": "https://user:pass@example.org/in"}, -32602, "delivery.url"),
        ({"url": "https://[::1"}, -32602, "delivery.url"),
        ({"url": "https://10.0.0.1/in"}, -32602, "private network"),
        ({"url": "https://169.254.169.254/latest"}, -32602, "private network"),
        ({"url": "http://[::1]:9/in"}, -32602, "private network"),
        ({"url": "http://127.0.0.1:9/in"}, -32015, "not verified"),
        ({"name": "signal.created\u0000"}, -32602, "NUL"),
    ],
)
async def test_what_cannot_be_used_is_refused_in_words_and_nothing_is_stored(
    line: LedgerPipeline, url: str, change: dict[str, Any], code: int, words: str
) -> None:
    given = wanted("https://example.org/in")
    inner = {name: value for name, value in change.items() if name in ("mode", "secret", "url")}
    given |= {name: value for name, value in change.items() if name not in inner}
    if inner:
        given["delivery"] = given["delivery"] | inner
    async with agent(url) as client:
        error = await refused(client, "subscribe", given)
    assert (error.code, words in error.message) == (code, True), error.message
    secret = inner.get("secret", key())
    assert secret not in f"{error.message}{error.data}"
    assert db.number("SELECT COUNT(*) FROM managed_destinations") == 0
    assert not (line.rt.settings.csi.state_dir / destination_secrets.FILE).exists()


@pytest.mark.parametrize("fault", ["no_echo", "moved", "500", "404"])
async def test_a_callback_that_does_not_confirm_gets_nothing(
    line: LedgerPipeline, url: str, callback: CallbackServer, fault: str
) -> None:
    with callback_server() as other:
        reason = {"no_echo": "challenge_failed", "moved": "challenge_failed", "500": "http_5xx", "404": "http_4xx"}[
            fault
        ]
        callback.echoes, callback.moved_to = fault != "no_echo", other.url if fault == "moved" else ""
        callback.status = int(fault) if fault.isdigit() else 200
        async with agent(url) as client:
            error = await refused(client, "subscribe", wanted(callback.url))
        assert other.got == []
    assert (error.code, error.data) == (-32015, {"reason": reason})
    assert "<b>" not in error.message
    line.publish(1)
    line.wait(20)
    assert (len(callback.got), callback.events) == (1, [])


async def test_a_host_that_is_private_only_at_delivery_is_not_reached(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    async with agent(url) as client:
        await ask(client, "subscribe", wanted(callback.url))
    line.rt.web.close()
    line.rt.__dict__.pop("web")
    nowhere = line.rt.settings.net.model_copy(update={"allowed_private_hosts": ()})
    line.rt.settings = line.rt.settings.model_copy(update={"net": nowhere})
    line.run()
    line.publish(1)
    line.wait(20)
    assert callback.events == []
    (reason,) = [reason for (reason,) in db.fetch("SELECT reason FROM destinations WHERE circuit = 'open'")]
    assert reason.startswith("private: ")


async def test_the_number_of_subscriptions_and_of_verifications_is_limited(
    line: LedgerPipeline, url: str, callback: CallbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_subscriptions, "MOST", 2)
    async with agent(url) as client, agent(url, TOKEN) as admin:
        for tag in ("one", "two"):
            await ask(client, "subscribe", wanted(callback.url, arguments={"tags": [tag]}))
        error = await refused(client, "subscribe", wanted(callback.url))
        assert (error.code, error.data) == (-32013, {"limit": "subscriptions", "max": 2})
        assert (await ask(client, "subscribe", wanted(callback.url, arguments={"tags": ["two"]})))["id"]
        assert (await ask(admin, "subscribe", wanted(callback.url)))["id"], "each token has its own limit"
        callback.echoes = False
        for _ in range(event_requests.PER_MINUTE - 3):
            await refused(admin, "subscribe", wanted(f"{callback.url}/victim"))
        contacted = len(callback.got)
        error = await refused(admin, "subscribe", wanted(f"{callback.url}/victim"))
    assert (error.code, error.data, len(callback.got)) == (-32013, {"limit": "requests"}, contacted)


async def test_every_request_is_audited_and_no_secret_is_readable(
    line: LedgerPipeline, url: str, callback: CallbackServer
) -> None:
    async with agent(url) as client:
        await ask(client, "list")
        await ask(client, "subscribe", wanted(callback.url))
        await refused(client, "subscribe", wanted(callback.url, "whsec_x"))
        await ask(client, "unsubscribe", wanted(callback.url))
        shown = json.dumps([(await client.call_tool(name, {})).structured_content for name in ("get_status",)])
    records = [one for one in audit_rows.page(20) if "events/" in one.action]
    assert [(one.via, one.role, one.action, one.status) for one in reversed(records)] == [
        ("mcp", "reader", "GET events/list", 200),
        ("mcp", "reader", "POST events/subscribe", 200),
        ("mcp", "reader", "POST events/subscribe", 400),
        ("mcp", "reader", "POST events/unsubscribe", 200),
    ]
    rows = json.dumps([vars(one) for one in managed_destinations.every(0.0)])
    everything = f"{records}{rows}{shown}"
    assert "127.0.0.1" in everything
    assert not [text for text in (key(), "whsec_x", "a-capability-of-the-agent") if text in everything]
