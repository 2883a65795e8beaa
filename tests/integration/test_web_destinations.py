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
from csi.store import db, managed_destinations
from csi.store.queries import audit_rows
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
    return " ".join(f"{one.action} {one.detail}" for one in audit_rows.page(50))


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
    assert (managed_destinations.every(0.0), secret in kept(at)) == ([], False)
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
async def test_a_request_without_an_answer_is_shown_in_words(api: httpx.AsyncClient, at: OperatorRig) -> None:
    await api.post("/destinations", json={"name": "hook", "settings": UNSIGNED | {"endpoint": "http://127.0.0.1:9/"}})
    await api.post("/destinations/hook/test")
    shown = (await api.get("/destinations/hook")).json()
    assert shown["attempts"][0]["reason"] == "connection refused"
    assert "connection refused" in at.call("destinations", "show", "hook").stdout


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
    assert (managed_destinations.every(0.0), kept(at)) == ([], "")


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
    assert (answer.status_code, managed_destinations.every(0.0)) == (409, [])
    assert "only csi destinations on the host" in answer.json()["detail"]
    await api.post("/destinations", json={"name": "hook", "settings": HOOK})
    assert (await api.post("/destinations/hook", json={"settings": named})).status_code == 409
    assert "CSI_OTHER_SECRET" not in managed_destinations.find("hook").settings_json


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
async def test_services_of_a_clouds_host_cannot_be_a_destination_through_the_api(
    api: httpx.AsyncClient, host: str
) -> None:
    for wanted in (
        {"settings": HOOK | {"endpoint": f"https://{host}/latest"}},
        {"settings": {"answers": "status"}, "secret_endpoint": f"https://{host}/latest"},
    ):
        answer = await api.post("/destinations", json={"name": "hook", **wanted})
        assert (answer.status_code, managed_destinations.every(0.0)) == (409, []), answer.text
        assert "in the configuration file only" in answer.json()["detail"]


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


# ── the dashboard, without JavaScript ───────────────────────────────────────────────────────────────────

HOSTILE = """</title><script>window.hit=1</script>'"&{{7*7}}"""


@pytest_asyncio.fixture
async def page(site: httpx.AsyncClient) -> httpx.AsyncClient:
    await site.post("/login", data={"token": TOKEN, "next": "/"})
    return site


async def send(page: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    token = re.search(r'name="form_token" value="(\w+)"', (await page.get("/actions")).text)
    assert token
    return await page.post(path, data={"form_token": token[1], **fields})


async def version(page: httpx.AsyncClient, name: str = "hook") -> str:
    found = re.search(r'name="version" value="([^"]+)"', (await page.get(f"/destinations/{name}")).text)
    assert found
    return found[1]


@pytest.mark.asyncio
async def test_the_page_adds_shows_changes_and_removes(page: httpx.AsyncClient, at: OperatorRig) -> None:
    added = await send(page, "/destinations", name="hook", **HOOK, tags="ai, news", headers="{X-Team: red}")
    (secret,) = re.findall(HEX, added.text.partition('id="secret">')[2][:64])
    assert (added.status_code, secret in kept(at), "set-cookie" in added.headers) == (200, True, False)
    shown = (await page.get("/destinations/hook")).text
    stored = managed_destinations.find("hook").settings_json
    assert all(part in stored for part in ('"tags":["ai","news"]', '"X-Team":"red"'))
    assert all(text in shown for text in ('value="ai, news"', 'value="{X-Team: red}"', HOOK["endpoint"]))

    old = await version(page)
    fields = {**HOOK, "tags": "", "timeout_seconds": "5s", "template": '{"id":\r\n{{ event.event_id | tojson }}}'}
    changed = await send(page, "/destinations/hook", version=old, **fields)
    assert changed.status_code == 303, re.findall("Not saved[^<]*", changed.text)
    stored = managed_destinations.find("hook").settings_json
    assert '"timeout_seconds":5.0' in stored
    assert "tags" not in stored
    late = await send(page, "/destinations/hook", version=old, timeout_seconds="9s")
    assert (late.status_code, "was changed meanwhile" in late.text) == (400, True)
    assert managed_destinations.find("hook").settings_json == stored

    unsure = await send(page, "/destinations/hook/remove", version=await version(page))
    assert (unsure.status_code, managed_destinations.find("hook") is not None) == (303, True)
    await send(page, "/destinations/hook/remove", version=await version(page), sure="yes")
    assert managed_destinations.every(0.0) == []
    assert "hook is removed" in (await page.get("/destinations")).text
    assert secret not in f"{shown}{recorded()}"


@pytest.mark.asyncio
async def test_the_page_rotates_once_and_shows_the_secret_once(page: httpx.AsyncClient, at: OperatorRig) -> None:
    await send(page, "/destinations", name="hook", **HOOK)
    form = {"version": await version(page), "overlap": "1d"}
    done = await send(page, "/destinations/hook/rotate", **form)
    (new,) = re.findall(HEX, done.text.partition('id="secret">')[2][:64])
    before = kept(at)
    assert (new in before, "set-cookie" in done.headers, done.headers["cache-control"]) == (True, False, "no-store")
    assert (await send(page, "/destinations/hook/rotate", **form)).status_code == 303, "the same form, sent again"
    shown = (await page.get("/destinations/hook")).text
    assert (kept(at), "was changed meanwhile" in shown, new in shown + recorded()) == (before, True, False)
    assert "never since the rotation" in shown
    managed_destinations.note_previous_needed("hook", at.now)
    assert "never since the rotation" not in (await page.get("/destinations/hook")).text


@pytest.mark.asyncio
async def test_a_request_keeps_the_address_that_it_was_sent_to(page: httpx.AsyncClient, at: OperatorRig) -> None:
    before, now = "http://127.0.0.1:9/before", "http://127.0.0.1:9/now"
    await send(page, "/destinations", name="hook", **UNSIGNED | {"endpoint": f"{before}?key=1"})
    await send(page, "/destinations/hook/sample", **{"from": "own"})
    assert at.call("destinations", "set", "hook", f"endpoint={now}").exit_code == 0
    shown = at.json("destinations", "show", "hook")
    assert (shown["url"], [one["url"] for one in shown["attempts"]]) == (now, [before])
    assert f"to {before}\n" in at.call("destinations", "show", "hook").stdout
    assert f"<bdi>{before}</bdi>" in (await page.get("/destinations/hook")).text


@pytest.mark.asyncio
async def test_the_page_sends_a_sample_pauses_and_resumes(page: httpx.AsyncClient) -> None:
    with ScriptedReceiver(then=json_reply(503, HOSTILE.encode())) as receiver:
        await send(page, "/destinations", name="hook", **UNSIGNED | {"endpoint": receiver.url})
        answer = await send(page, "/destinations/hook/sample", **{"from": "own"})
        assert answer.headers["location"] == "/destinations/hook"
        shown = (await page.get("/destinations/hook")).text
        assert (len(receiver.requests), "http 503" in shown, receiver.url in shown) == (1, True, True)
    await send(page, "/destinations/hook/pause", reason=HOSTILE, **{"from": "own"})
    for path in ("/destinations", "/destinations/hook"):
        shown = (await page.get(path)).text
        assert ("paused by the operator" in shown, "window.hit=1&lt;/script" in shown, "<script>w" in shown) == (
            True, True, False,
        )  # fmt: skip
    assert "0 %" in (await page.get("/destinations")).text
    await send(page, "/destinations/hook/resume", **{"from": "own"})
    assert "Delivery to hook is resumed" in (await page.get("/destinations/hook")).text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "no/name", **HOOK}, "a name has 1 to 64 letters"),
        ({"name": "fixed", **HOOK}, "the configuration has a destination fixed"),
        ({"name": "hook", "endpoint": ""}, "endpoint, or endpoint_env"),
        ({"name": "hook", **HOOK, "body": "parcel"}, "body:"),
        ({"name": "hook", **HOOK, "headers": "{Authorization: abc}"}, "value_env"),
        ({"name": "hook", **HOOK, "headers": "{X-Key: {value_env: CSI_OTHER_SECRET}}"}, "only csi destinations on the"),
        ({"name": "hook", **HOOK, "template": HOSTILE + "{{ a.b.c }}"}, "template"),
    ],
)
async def test_a_form_that_is_refused_keeps_its_text_but_no_secret(
    page: httpx.AsyncClient, at: OperatorRig, fields: dict[str, str], words: str
) -> None:
    answer = await send(page, "/destinations", **fields, secret="given+by/hand=1")
    assert (answer.status_code, managed_destinations.every(0.0), kept(at)) == (400, [], "")
    assert words in answer.text
    assert f'value="{fields["name"]}"' in answer.text
    assert not any(text in answer.text + recorded() for text in ("given+by", "given%2Bby", "<script>w"))


@pytest.mark.asyncio
async def test_a_destination_of_the_file_is_shown_with_the_file_and_has_no_form(
    page: httpx.AsyncClient, at: OperatorRig
) -> None:
    shown = (await page.get("/destinations/fixed")).text
    assert (str(at.config) in shown, "Change settings" in shown, "/rotate" in shown) == (True, False, False)
    assert (await send(page, "/destinations/fixed", version="", tags="ai")).status_code == 400
    for act in ("rotate", "remove"):
        await send(page, f"/destinations/fixed/{act}", overlap="1d", sure="yes", version="")
        assert "is from the configuration" in (await page.get("/destinations/fixed")).text
    assert (await page.get("/destinations/moon")).status_code == 404
    assert (await send(page, "/destinations/moon", tags="ai")).status_code == 404


@pytest.mark.asyncio
async def test_a_subscription_of_an_agent_is_called_so_and_can_only_be_paused_and_removed(
    page: httpx.AsyncClient, at: OperatorRig
) -> None:
    await send(page, "/destinations", name="hook", **UNSIGNED)
    with db.writing():
        managed_destinations.set_expiry("hook", "reader", at.rt.now() + 600)
    listed, shown = (await page.get("/destinations")).text, (await page.get("/destinations/hook")).text
    assert "a subscription of an agent" in listed
    assert "a subscription of an agent; it expires" in shown
    assert all(f'action="/destinations/hook/{act}"' in shown for act in ("sample", "pause", "remove"))
    assert not any(text in shown for text in ('action="/destinations/hook"', "hook/rotate", "added by command"))


@pytest.mark.asyncio
async def test_without_the_form_token_or_the_admin_role_nothing_changes(site: httpx.AsyncClient) -> None:
    assert (await site.get("/destinations/default")).headers["location"].startswith("/login")
    assert (await site.post("/destinations", data={"name": "hook", **HOOK})).status_code == 401
    await site.post("/login", data={"token": TOKEN})
    assert (await site.post("/destinations", data={"name": "hook", **HOOK})).status_code == 403
    await site.post("/login", data={"token": READ_TOKEN})
    shown = (await site.get("/destinations")).text
    assert ("Add a destination" in shown, "default" in shown) == (False, True)
    assert (await send(site, "/destinations", name="hook", **HOOK)).status_code == 403
    assert managed_destinations.every(0.0) == []
