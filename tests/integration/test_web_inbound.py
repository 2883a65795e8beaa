"""Senders and messages of /hooks in the admin API and on the dashboard: secrets shown once, commands that work."""

import re
import shlex
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from openapi_schema_validator import OAS31Validator

from csi.pipeline import inbound_process
from csi.store import db, inbound_messages
from csi.web import openapi
from csi.web.app import create_app
from tests.rigs.operator import OperatorRig, operator_rig

TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
BASE = "http://test"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorRig]:
    web, inbound = {"allowed_hosts": ["test"]}, {"enabled": True, "public_url": BASE.replace("http:", "https:")}
    with operator_rig(tmp_path, web=web, inbound=inbound) as built:
        secrets = built.rt.settings.secrets
        tokens = {"admin_token": TOKEN, "admin_read_token": READ_TOKEN, "inbound_key": "0123456789abcdef" * 4}
        changed = secrets.model_validate(secrets.model_dump() | tokens)
        built.rt.settings = built.rt.settings.model_copy(update={"secrets": changed})
        monkeypatch.setenv("CSI_CONFIG_PATH", str(built.config))
        built.alive()
        yield built


@pytest_asyncio.fixture
async def site(at: OperatorRig) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(lambda: at.rt))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as one:
        yield one


async def admin(site: httpx.AsyncClient, method: str, path: str, token: str = TOKEN, **more) -> httpx.Response:
    return await site.request(method, f"/admin/inbound{path}", headers={"Authorization": f"Bearer {token}"}, **more)


async def carry_out(site: httpx.AsyncClient, command: str) -> httpx.Response:
    """What curl would send."""
    words = shlex.split(command)
    headers = dict(words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H")
    body = words[words.index("--data") + 1].encode()
    return await site.post(words[-1].replace("https://test", ""), content=body, headers=headers)


@pytest.mark.asyncio
async def test_a_sender_is_added_tested_rotated_and_removed_by_the_api(site, at):
    made = (await admin(site, "POST", "/senders", json={"name": "n8n"})).json()
    assert made["secret"].startswith("whsec_")
    assert made["url"].startswith("https://test/hooks/n8n/")
    tested = (await admin(site, "POST", "/senders/n8n/test")).json()
    assert (await carry_out(site, tested["command"])).status_code == 202
    (message,) = (await admin(site, "GET", "/messages")).json()["messages"]
    inbound_process.process(at.rt, message["id"])
    (message,) = (await admin(site, "GET", "/messages?state=done")).json()["messages"]
    assert message["result"] == "1 stored, 0 known"
    content = (await admin(site, "GET", f"/messages/{message['id']}")).json()["content"]
    assert '"event_type": "test"' in content
    assert (await admin(site, "POST", "/replay", json={"ids": [message["id"]]})).json() == {"messages": [message["id"]]}
    rotated = (await admin(site, "POST", "/senders/n8n/rotate", json={"grace": "0", "address": True})).json()
    assert (rotated["secret"] != made["secret"], rotated["url"] != made["url"]) == (True, True)
    assert (await carry_out(site, tested["command"])).status_code == 404
    assert (await admin(site, "DELETE", "/senders/n8n")).json() == {"sender": "n8n"}
    shown = (await admin(site, "GET", "")).json()
    assert (shown["served"], shown["senders"]) == (True, [])
    everything = str(db.fetch("SELECT * FROM audit"))
    assert "rotate" in everything
    assert made["secret"] not in everything
    assert rotated["url"].rpartition("/")[2] not in everything


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/senders", {"name": "Bad Name"}, 409),
        ("/senders", {"name": "websub-1"}, 409),
        ("/senders", {"name": "x", "kind": "composio"}, 400),
        ("/senders", {"name": "x", "secret_env": "CSI_ADMIN_TOKEN"}, 400),
        ("/senders", {"name": "x", "kind": "items", "source": "nothing"}, 409),
        ("/senders", {"name": "x", "tier": "fast"}, 400),
        ("/senders/nobody/rotate", {}, 404),
        ("/senders/nobody/test", {}, 404),
        ("/senders/nobody/rotate", {"grace": "-1"}, 400),
        ("/replay", {}, 400),
        ("/replay", {"ids": [1], "failed": True}, 400),
        ("/replay", {"ids": ["x"]}, 400),
    ],
)
async def test_what_cannot_be_done_is_refused_by_the_api(site, path, body, status):
    answer = await admin(site, "POST", path, json=body)
    assert (answer.status_code, bool(answer.json()["detail"])) == (status, True)


@pytest.mark.asyncio
async def test_a_reader_sees_and_changes_nothing_and_strangers_see_nothing(site):
    await admin(site, "POST", "/senders", json={"name": "n8n"})
    assert (await admin(site, "GET", "", READ_TOKEN)).status_code == 200
    for method, path in (("POST", "/senders/n8n/test"), ("POST", "/senders/n8n/rotate"), ("DELETE", "/senders/n8n")):
        assert (await admin(site, method, path, READ_TOKEN)).status_code == 403
        assert (await admin(site, method, path, "guess")).status_code == 401
    assert (await admin(site, "GET", "/messages/1")).status_code == 404
    assert (await admin(site, "DELETE", "/senders/nobody")).status_code == 404


def test_the_answers_are_those_of_the_openapi_document():
    document = openapi.document()
    paths = [path for path in document["paths"] if path.startswith("/admin/inbound")]
    assert len(paths) == 8
    for path in paths:
        for operation in document["paths"][path].values():
            if isinstance(operation, dict) and "responses" in operation:
                assert {"200", "201"} & operation["responses"].keys()
    OAS31Validator.check_schema(document["components"]["schemas"]["InboundStatus"])


@pytest.mark.asyncio
async def test_the_page_adds_a_sender_shows_its_secret_once_and_a_command_that_works(site, at):
    await site.post("/login", data={"token": TOKEN, "next": "/"})
    page = (await site.get("/inbound")).text
    token = re.search(r'name="form_token" value="(\w+)"', page)[1]
    made = await site.post("/inbound", data={"form_token": token, "name": "shop", "kind": "events", "tier": "urgent"})
    assert made.status_code == 200
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", unescape(made.text))[0]
    for path in ("/inbound", "/actions"):
        assert secret not in unescape((await site.get(path)).text)
    shown = await site.post("/inbound/shop/test", data={"form_token": token})
    command = unescape(re.search(r'id="command">(.*?)</pre>', shown.text, re.S)[1])
    assert (await carry_out(site, command)).status_code == 202
    (message,) = inbound_messages.newest(5)
    assert "handled again" not in (await site.get("/inbound")).text
    inbound_process.process(at.rt, message.id)
    again = await site.post("/inbound/messages/replay", data={"form_token": token, "id": str(message.id)})
    assert again.headers["location"] == "/inbound"
    assert inbound_messages.waiting() == 1
    await site.post("/inbound/shop/remove", data={"form_token": token})
    assert "shop</bdi>" in (await site.get("/inbound")).text, "the box was not ticked"
    await site.post("/inbound/shop/remove", data={"form_token": token, "sure": "yes"})
    assert "No senders yet" in (await site.get("/inbound")).text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "form",
    [
        {"name": "<script>alert(1)</script>", "kind": "events"},
        {"name": "x", "kind": "composio"},
        {"name": "x", "kind": "items", "source": "nothing"},
        {"name": "x" * 5000, "kind": "events"},
        {},
    ],
)
async def test_hostile_forms_add_nothing(site, form):
    await site.post("/login", data={"token": TOKEN, "next": "/"})
    token = re.search(r'name="form_token" value="(\w+)"', (await site.get("/inbound")).text)[1]
    answer = await site.post("/inbound", data={"form_token": token, **form})
    assert answer.status_code == 303
    page = (await site.get("/inbound")).text
    assert "Not added" in page
    assert "<script>alert" not in page
    assert "No senders yet" in page
    assert (await site.post("/inbound", data={"name": "y", "kind": "events"})).status_code == 403
