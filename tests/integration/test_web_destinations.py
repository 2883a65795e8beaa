"""Destinations in the admin API and on the dashboard: the operations of `csi destinations`, secrets shown once."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openapi_schema_validator import OAS31Validator

from csi.config import destination_secrets
from csi.store import audit, managed_destinations
from csi.web import openapi
from csi.web.app import create_app
from tests.fakes.scripted_receiver import ScriptedReceiver, json_reply
from tests.rigs.operator import OperatorRig, operator_rig

TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
HOOK = {"endpoint": "http://127.0.0.1:9/in", "answers": "status", "body": "event"}
UNSIGNED = HOOK | {"signature": "none"}
HEX = r"[0-9a-f]{64}"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorRig]:
    fixed = {"fixed": {"endpoint": "http://127.0.0.1:9/", "secret_env": "CSI_UA_SHARED_SECRET"}}
    with operator_rig(tmp_path, delivery={"destinations": fixed}, web={"allowed_hosts": ["test"]}) as built:
        secrets = built.rt.settings.secrets
        tokens = {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
        changed = secrets.model_validate(secrets.model_dump() | tokens)
        built.rt.settings = built.rt.settings.model_copy(update={"secrets": changed})
        monkeypatch.setenv("CSI_CONFIG_PATH", str(built.config))
        monkeypatch.setenv("CSI_OTHER_SECRET", "a-secret-of-the-host")
        built.alive()
        yield built


@pytest_asyncio.fixture
async def site(at: OperatorRig) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(lambda: at.rt))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as one:
        yield one


@pytest.fixture
def api(site: httpx.AsyncClient) -> httpx.AsyncClient:
    site.base_url = httpx.URL("http://test/admin")
    site.headers["Authorization"] = f"Bearer {TOKEN}"
    return site


def kept(at: OperatorRig) -> str:
    file = at.rt.settings.csi.state_dir / destination_secrets.FILE
    return file.read_text() if file.exists() else ""


def recorded() -> str:
    """All that the audit log has."""
    return " ".join(f"{one.action} {one.detail}" for one in audit.page(50))


def described(method: str, path: str, status: int, body: Any) -> None:
    document = openapi.document()
    schema = document["paths"][path][method]["responses"][str(status)]["content"]["application/json"]["schema"]
    OAS31Validator({"components": document["components"], **schema}).validate(body)


# ── the admin API ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_a_destination_is_added_shown_changed_and_removed(api: httpx.AsyncClient, at: OperatorRig) -> None:
    answer = await api.post("/destinations", json={"name": "hook", "settings": HOOK | {"tags": ["ai"]}})
    added, secret = answer.json(), answer.json()["secret"]
    assert (answer.status_code, bool(re.fullmatch(HEX, secret)), secret in kept(at)) == (201, True, True)
    described("post", "/admin/destinations", 201, added)

    changed = await api.post("/destinations/hook", json={"settings": {"tags": None, "timeout_seconds": "5s"}})
    assert (changed.status_code, changed.json()["secret"]) == (200, None)
    described("post", "/admin/destinations/{destination}", 200, changed.json())
    reader = {"Authorization": f"Bearer {READ_TOKEN}"}
    shown = (await api.get("/destinations/hook", headers=reader)).json()
    described("get", "/admin/destinations/{destination}", 200, shown)
    assert (shown["origin"], shown["settings"]["timeout_seconds"], "tags" in shown["settings"]) == ("command", 5, False)
    listed = (await api.get("/destinations", headers=reader)).json()
    described("get", "/admin/destinations", 200, listed)
    assert listed == at.json("destinations", "list")
    assert [one["destination"] for one in listed["destinations"]] == ["fixed", "default", "hook"]

    preview = await api.delete("/destinations/hook", params={"dry_run": "true"})
    assert (preview.json(), managed_destinations.find("hook") is not None) == (
        {"destination": "hook", "queued_events": 0, "dry_run": True}, True,
    )  # fmt: skip
    assert (await api.delete("/destinations/hook")).status_code == 200
    assert (managed_destinations.every(), secret in kept(at)) == ([], False)
    assert (await api.get("/destinations/hook")).status_code == 404
    assert secret not in f"{shown}{listed}{recorded()}"


@pytest.mark.asyncio
async def test_the_api_pauses_resumes_and_tests(api: httpx.AsyncClient) -> None:
    with ScriptedReceiver(then=json_reply(503, b"<html>")) as receiver:
        await api.post("/destinations", json={"name": "hook", "settings": UNSIGNED | {"endpoint": receiver.url}})
        tested = (await api.post("/destinations/hook/test")).json()
        described("post", "/admin/destinations/{destination}/test", 200, tested)
        assert (tested["ok"], tested["status"], len(receiver.requests)) == (False, 503, 1)
    assert (await api.post("/destinations/hook/pause", json={"reason": "moving"})).json()["changed"] is True
    shown = (await api.get("/destinations/hook")).json()
    assert (shown["state"], shown["reason"], shown["success"], shown["attempts"][0]["status"]) == (
        "paused", "moving", 0.0, 503,
    )  # fmt: skip
    assert (await api.post("/destinations/hook/resume")).json()["changed"] is True


@pytest.mark.asyncio
async def test_a_rotated_secret_is_in_its_answer_alone(api: httpx.AsyncClient, at: OperatorRig) -> None:
    first = (await api.post("/destinations", json={"name": "hook", "settings": HOOK})).json()["secret"]
    done = (await api.post("/destinations/hook/rotate", json={"overlap": "2h"})).json()
    described("post", "/admin/destinations/{destination}/rotate", 200, done)
    shown = (await api.get("/destinations/hook")).json()
    assert (shown["rotation"]["previous_until"], shown["rotation"]["previous_needed_at"]) == (
        done["previous_until"], None,
    )  # fmt: skip
    assert first != done["secret"]
    assert not any(one in f"{shown}{recorded()}" for one in (first, done["secret"]))
    await api.post("/destinations/hook", json={"settings": {"tags": ["ai"]}})
    assert managed_destinations.find("hook").previous_until is not None, "a change of settings keeps the overlap"


@pytest.mark.asyncio
async def test_a_signature_that_begins_makes_a_secret_and_one_that_ends_forgets_it(
    api: httpx.AsyncClient, at: OperatorRig
) -> None:
    added = (await api.post("/destinations", json={"name": "hook", "settings": UNSIGNED})).json()
    assert (added["secret"], kept(at)) == (None, "")
    signed = await api.post("/destinations/hook", json={"settings": {"signature": "github"}})
    assert signed.json()["secret"] in kept(at)
    await api.post("/destinations/hook", json={"settings": {"signature": "none"}})
    assert signed.json()["secret"] not in kept(at)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/destinations", {}, 400, "name"),
        ("POST", "/destinations", {"name": "no/name", "settings": HOOK}, 400, "a name has 1 to 64"),
        ("POST", "/destinations", {"name": "hook"}, 400, "endpoint, or endpoint_env"),
        ("POST", "/destinations", {"name": "hook", "settings": HOOK | {"colour": "red"}}, 400, "settings: unknown key"),
        ("POST", "/destinations", {"name": "hook", "settings": HOOK | {"body": "parcel"}}, 400, "body:"),
        ("POST", "/destinations", {"name": "hook", "settings": HOOK | {"endpoint": "file:///etc"}}, 400, "endpoint:"),
        ("POST", "/destinations", {"name": "hook", "settings": HOOK | {"template": "{{ a.b.c }}"}}, 400, "template:"),
        ("POST", "/destinations", {"name": "hook", "settings": []}, 400, "settings"),
        ("POST", "/destinations", {"name": "fixed", "settings": HOOK}, 409, "the configuration has a destination"),
        ("POST", "/destinations/fixed", {"settings": {"body": "event"}}, 409, "config.yaml, then reload"),
        ("POST", "/destinations/default/rotate", {}, 409, "CSI_UA_ENDPOINT"),
        ("DELETE", "/destinations/fixed", None, 409, "is from the configuration"),
        ("POST", "/destinations/moon", {"settings": {"body": "event"}}, 404, "there is no destination"),
        ("POST", "/destinations/moon/rotate", {}, 404, "there is no destination"),
        ("POST", "/destinations/moon/test", {}, 404, "there is no destination"),
        ("GET", "/destinations/moon", None, 404, "there is no destination"),
        ("POST", "/destinations/moon", {"settings": {}}, 400, "settings"),
        ("POST", "/destinations/moon/rotate", {"overlap": "soon"}, 400, "overlap"),
    ],
)
async def test_what_is_refused_says_why_and_changes_nothing(
    api: httpx.AsyncClient, at: OperatorRig, method: str, path: str, body: Any, status: int, words: str
) -> None:
    answer = await api.request(method, path, json=body) if body is not None else await api.request(method, path)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]
    assert (managed_destinations.every(), kept(at)) == ([], "")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "named",
    [
        {"bearer_env": "CSI_OTHER_SECRET"},
        {"secret_env": "CSI_OTHER_SECRET"},
        {"headers": {"X-Api-Key": {"value_env": "CSI_OTHER_SECRET"}}},
        {"secret_env": "CSI_UA_SHARED_SECRET"},
    ],
)
async def test_secrets_of_the_host_cannot_be_sent_anywhere_through_the_api(
    api: httpx.AsyncClient, at: OperatorRig, named: dict[str, Any]
) -> None:
    answer = await api.post("/destinations", json={"name": "hook", "settings": HOOK | named})
    assert (answer.status_code, managed_destinations.every()) == (409, [])
    assert "only csi destinations on the host" in answer.json()["detail"]
    await api.post("/destinations", json={"name": "hook", "settings": HOOK})
    assert (await api.post("/destinations/hook", json={"settings": named})).status_code == 409
    assert "CSI_OTHER_SECRET" not in managed_destinations.find("hook").settings_json


@pytest.mark.asyncio
async def test_a_destination_with_a_variable_of_the_host_keeps_its_address(
    api: httpx.AsyncClient, at: OperatorRig
) -> None:
    at.env["CSI_OTHER_SECRET"] = "a-secret-of-the-host"
    done = at.call("destinations", "add", "hook", HOOK["endpoint"], "bearer_env=CSI_OTHER_SECRET")
    assert done.exit_code == 0, done.output
    answer = await api.post("/destinations/hook", json={"settings": {"endpoint": "http://127.0.0.1:10/mine"}})
    assert (answer.status_code, "mine" in managed_destinations.find("hook").settings_json) == (409, False)


@pytest.mark.asyncio
async def test_secrets_that_are_given_reach_neither_the_audit_log_nor_an_answer(
    api: httpx.AsyncClient, at: OperatorRig
) -> None:
    url, secret = "https://hooks.example.org/services/very-private-part", 's3cret+given/by=hand"quoted\\'
    given = {"name": "chat", "settings": {"preset": "slack"}, "secret_endpoint": url}
    bad = [
        {"name": "one", "settings": HOOK, "secret": secret, "unknown": 1},
        {"name": "two", "settings": HOOK | {"body": "parcel"}, "secret": secret},
        {"name": "three", "settings": HOOK | {"signature": "standard_webhooks", "secret_form": "whsec"}}
        | {"secret": secret},
    ]
    answers = [await api.post("/destinations", json=body) for body in bad]
    assert [one.status_code for one in answers] == [400, 400, 400]
    done = await api.post("/destinations", json=given)
    assert done.status_code == 201, done.text
    shown = await api.get("/destinations/chat")
    assert shown.json()["url"] == "https://hooks.example.org/…"
    seen = " ".join([recorded(), done.text, shown.text, *(one.text for one in answers)])
    assert not any(part in seen for part in ("very-private-part", "s3cret", "given/by"))


@pytest.mark.asyncio
async def test_the_read_token_changes_no_destination(api: httpx.AsyncClient) -> None:
    reader = {"Authorization": f"Bearer {READ_TOKEN}"}
    for path in ("/destinations", "/destinations/default/test", "/destinations/default/rotate"):
        assert (await api.post(path, json={}, headers=reader)).status_code == 403
    assert (await api.delete("/destinations/default", headers=reader)).status_code == 403
