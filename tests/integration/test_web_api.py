"""The admin API: responses match their description, changes are those of the commands, and all are in the audit log."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import SecretStr
from starlette.routing import Mount, Route

from csi.dlq import dead_letters
from csi.doctor import destination_check
from csi.store import audit, db, destinations, watches
from csi.store.models import Watch
from csi.store.queries import audit_rows
from csi.web import api, openapi
from csi.web.app import create_app
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.operator import OperatorRig, operator_rig

TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
ADMIN, READER = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, READ_TOKEN))
CHANNEL = "UC" + "a" * 22


@pytest.fixture
def at(tmp_path: Path) -> Iterator[OperatorRig]:
    sources = {
        "youtube_playlist": {
            "api_base_url": "http://127.0.0.1:9/youtube/v3", "playlists": [{"id": "PLone"}, {"id": "PLtwo"}],
        },
        "youtube_channel_rss": {"feed_url_template": "http://127.0.0.1:9/feed?channel_id={channel_id}"},
    }  # fmt: skip
    with operator_rig(tmp_path, sources=sources, web={"allowed_hosts": ["test"]}) as built:
        secrets = built.rt.settings.secrets
        tokens = {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
        changed = secrets.model_validate(secrets.model_dump() | tokens)
        built.rt.settings = built.rt.settings.model_copy(update={"secrets": changed})
        built.alive()
        yield built


@pytest_asyncio.fixture
async def client(at: OperatorRig) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(lambda: at.rt))
    async with httpx.AsyncClient(transport=transport, base_url="http://test/admin", headers=ADMIN) as one:
        yield one


# ── its description ─────────────────────────────────────────────────────────────────────────────────────


def test_the_document_is_valid_openapi() -> None:
    document = json.loads(json.dumps(openapi.document()))
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1")
    sent = document["webhooks"]["ingest"]["post"]
    assert {one["name"] for one in sent["parameters"]} == {"X-CSI-Signature", "X-CSI-Timestamp", "X-CSI-Request-ID"}
    assert "events" in document["components"]["schemas"]["CSIIngestRequest"]["required"]


def test_every_route_is_described_and_every_description_is_served() -> None:
    app = create_app(lambda: None)  # type: ignore[arg-type, return-value]
    described = {(method.upper(), path) for path, item in openapi.document()["paths"].items() for method in item}
    admin = {(one.method, f"/admin{one.path}") for one in api.operations()}
    pages = {("GET", route.path) for route in app.routes if isinstance(route, Route) and _is_machine_page(route)}
    assert described == admin | pages
    assert len(admin) > 20
    assert any(isinstance(route, Mount) and route.path == "/admin" for route in app.routes)


def _is_machine_page(route: Route) -> bool:
    return route.path.endswith(("z", "/metrics", ".json", ".atom", ".opml"))


def test_operation_ids_are_unique_and_every_act_can_be_refused() -> None:
    names = [one.name for one in api.operations()]
    assert len(set(names)) == len(names)
    for path, item in openapi.document()["paths"].items():
        for operation in item.values():
            if path.startswith("/admin"):
                assert {"401", "403", "421", "503"} <= set(operation["responses"])


READS = [
    "/status", "/slo", "/slo?window=7d", "/queue", "/quota", "/audit", "/sources", "/sources?limit=1", "/sources/1",
    "/events", "/events?q=dead1&state=dead&source=youtube_playlist&tier=urgent&since=1h", "/events/1",
    "/trace?q=dead1", "/dlq", "/dlq?group_by=error", "/dlq?cause=transient&state=all&since=2d&error_like=503",
    "/dlq/1", "/delivery", "/doctor", "/notify", "/waiting",
]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("path", READS)
async def test_answers_fit_their_description(client: httpx.AsyncClient, at: OperatorRig, path: str) -> None:
    at.dead("dead1")
    at.event("wait1")
    await client.post("/sources/1/pause")
    answer = await client.get(path, headers=READER)
    assert answer.status_code == 200, answer.text
    _check("GET", path, 200, answer.json())


def _check(method: str, path: str, status: int, body: Any) -> None:
    document = openapi.document()
    bare = "/admin" + path.partition("?")[0]
    shapes = {name: item for name, item in document["paths"].items() if _matches(name, bare)}
    item = shapes.get(bare) or next(iter(shapes.values()))
    schema = item[method.lower()]["responses"][str(status)]["content"]["application/json"]["schema"]
    whole = {"components": document["components"], **schema}
    OAS31Validator(whole).validate(body)


def _matches(described: str, path: str) -> bool:
    ours, theirs = described.split("/"), path.split("/")
    return len(ours) == len(theirs) and all(a == b or a.startswith("{") for a, b in zip(ours, theirs, strict=True))


QUEUE_ONLY = {"/waiting": ("tasks", "total", "unreadable", "has_key")}
"""The queue's own tasks: the product does not know them."""


@pytest.mark.asyncio
async def test_read_answers_are_those_of_the_commands(client: httpx.AsyncClient, at: OperatorRig) -> None:
    """The API and --json have the same shapes."""
    at.dead("dead1")
    pairs = {
        "/dlq?limit=50": ("dlq", "list"),
        "/dlq?group_by=error": ("dlq", "list", "--group-by", "error"),
        "/dlq/1": ("dlq", "show", "1"),
        "/delivery": ("delivery", "status"),
        "/trace?q=dead1": ("trace", "dead1"),
        "/quota": ("quota",),
        "/sources": ("sources", "list"),
        "/status": ("status",),
        "/slo?window=24h": ("slo",),
        "/waiting": ("tasks", "list"),
        "/notify": ("notify", "status"),
    }
    for path, command in pairs.items():
        ours = (await client.get(path)).json()
        ours.pop("next", None)
        theirs = {name: value for name, value in at.json(*command).items() if name not in QUEUE_ONLY.get(path, ())}
        assert _timeless({name: ours[name] for name in theirs}) == _timeless(theirs), path


def _timeless(value: Any) -> Any:
    """Without what moves while one looks."""
    if isinstance(value, dict):
        moving = {"lasts_until", "planned_units", "units_per_hour", "forecast", "next_probe_at"}
        moving |= {"at", "since", "until", "rows_since", "heartbeat_age_seconds"}
        return {name: _timeless(inner) for name, inner in value.items() if name not in moving}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_watches_that_the_configuration_lost_are_removed_when_it_is_accepted(
    client: httpx.AsyncClient, at: OperatorRig
) -> None:
    db.run("UPDATE watches SET removal_held_at = 1.0")
    held = db.number("SELECT COUNT(*) FROM watches")
    dry = await client.post("/config/accept", json={"dry_run": True})
    assert (dry.json()["removed"], len(dry.json()["watches"])) == (0, held)
    done = await client.post("/config/accept", json={})
    assert (done.status_code, done.json()["removed"]) == (200, held)
    _check("POST", "/config/accept", 200, done.json())
    assert db.number("SELECT COUNT(*) FROM watches WHERE state = 'removed'") == held > 0


@pytest.mark.asyncio
async def test_a_source_is_added_paused_resumed_reset_and_removed(client: httpx.AsyncClient, at: OperatorRig) -> None:
    dry = await client.post("/sources", json={"what": CHANNEL, "dry_run": True})
    assert (dry.status_code, dry.json()["id"]) == (200, None)
    added = await client.post("/sources", json={"what": CHANNEL, "name": "Ä", "tags": ["x"], "first_poll": {"last": 2}})
    assert (added.status_code, added.json()["result"]) == (201, "added")
    _check("POST", "/sources", 201, added.json())
    number = added.json()["id"]
    assert (await client.post("/sources", json={"what": CHANNEL})).json()["result"] == "known"
    for act, body, state in (
        ("pause", {"dry_run": True}, "active"), ("pause", {}, "paused"), ("resume", {}, "active"),
        ("reset", {"emit": "all"}, "active"),
    ):  # fmt: skip
        answer = await client.post(f"/sources/{number}/{act}", json=body)
        assert (answer.status_code, answer.json()["state"]) == (200, state), answer.text
        _check("POST", f"/sources/{number}/{act}", 200, answer.json())
    assert json.loads(Watch.get_by_id(number).first_poll) == "all"
    revision = (await client.get(f"/sources/{number}")).json()["revision"]
    changed = await client.patch(f"/sources/{number}", json={"tags": ["y"], "first_poll": None, "revision": revision})
    assert [one["key"] for one in changed.json()["changes"]] == ["tags", "first_poll"]
    _check("PATCH", f"/sources/{number}", 200, changed.json())
    stale = await client.patch(f"/sources/{number}", json={"name": "Ö", "revision": revision})
    assert (stale.status_code, "changed meanwhile" in stale.json()["detail"]) == (409, True)
    _check("GET", f"/sources/{number}/reads", 200, (await client.get(f"/sources/{number}/reads")).json())
    assert (await client.delete(f"/sources/{number}?dry_run=true")).json()["state"] == "active"
    assert (await client.delete(f"/sources/{number}")).json()["state"] == "removed"
    assert (await client.post(f"/sources/{number}/pause")).status_code == 404


@pytest.mark.asyncio
async def test_a_source_of_the_configuration_is_changed_and_taken_back(client: httpx.AsyncClient) -> None:
    before = (await client.get("/sources/1")).json()
    assert (await client.patch("/sources/1", json={"tags": ["mine"]})).status_code == 200
    shown = (await client.get("/sources/1")).json()
    assert (shown["origin"], shown["options"]["tags"], shown["changed_options"]) == ("config", ["mine"], ["tags"])
    _check("GET", "/sources/1", 200, shown)
    assert (await client.patch("/sources/1", json={"from_file": True})).status_code == 200
    assert (await client.get("/sources/1")).json()["options"] == before["options"]


@pytest.mark.asyncio
async def test_a_source_of_the_configuration_is_not_removed(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/sources/1")
    assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
    assert "in the configuration" in answer.json()["detail"]


@pytest.mark.asyncio
async def test_a_poll_that_fails_says_why(client: httpx.AsyncClient) -> None:
    answer = await client.post("/sources/1/poll")
    assert answer.status_code == 200
    assert answer.json()["error"]
    _check("POST", "/sources/1/poll", 200, answer.json())


@pytest.mark.asyncio
async def test_lists_go_in_and_come_out(client: httpx.AsyncClient) -> None:
    lines = f"{CHANNEL}\nnot a channel\n"
    looked = await client.post("/sources/import?dry_run=true", content=lines)
    assert [looked.json()[word] for word in ("added", "known", "invalid", "dry_run")] == [1, 0, 1, True]
    done = await client.post("/sources/import", content=lines)
    assert (done.json()["added"], done.json()["invalid"]) == (1, 1)
    _check("POST", "/sources/import", 200, done.json())
    out = await client.get("/sources/export")
    assert out.headers["content-type"].startswith("text/x-opml")
    assert CHANNEL in out.text


@pytest.mark.asyncio
async def test_paging_visits_every_row_once(client: httpx.AsyncClient, at: OperatorRig) -> None:
    for number in range(5):
        at.dead(f"dead{number}")
    for path, key, cursor in (("/dlq", "letters", "before"), ("/events", "events", "before"),
                              ("/sources", "watches", "after")):  # fmt: skip
        seen, after = [], ""
        while True:
            page = (await client.get(f"{path}?limit=2{after}")).json()
            seen += [row["id"] for row in page[key]]
            if page["next"] is None:
                break
            after = f"&{cursor}={page['next']}"
        assert len(seen) == len(set(seen)) == (2 if path == "/sources" else 5), path


# ── dead letters ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "chosen"),
    [
        ({"ids": [1]}, 1), ({"all": True}, 3), ({"error_like": "503"}, 2), ({"cause": "event"}, 1),
        ({"source": "youtube_playlist", "since": "1h"}, 3), ({"destination": "elsewhere"}, 0),
    ],
    ids=["one", "all", "like", "cause", "source", "none"],
)  # fmt: skip
async def test_replay_one_a_filter_or_all(client: httpx.AsyncClient, at: OperatorRig, body: Any, chosen: int) -> None:
    at.dead("a"), at.dead("b"), at.dead("c", reason="http 422", cause="event", status=422)
    plan = await client.post("/dlq/replay", json=body | {"dry_run": True})
    assert (plan.json()["chosen"], dead_letters.open_count()) == (chosen, 3)
    _check("POST", "/dlq/replay", 200, plan.json())
    done = await client.post("/dlq/replay", json=body)
    assert (done.json()["sent"], dead_letters.open_count()) == (chosen, 3 - chosen)
    _check("POST", "/dlq/replay", 200, done.json())
    plan = await client.post("/dlq/replay", json=body | {"dry_run": True})
    assert plan.json()["chosen"] == 0


@pytest.mark.asyncio
async def test_nothing_is_destroyed_without_confirmation(client: httpx.AsyncClient, at: OperatorRig) -> None:
    at.dead("old", ago=100 * 86_400.0)
    for path, body in (("/dlq/prune", {"older_than": "90d"}), ("/dlq/discard", {"ids": [1]})):
        assert (await client.post(path, json=body)).status_code == 400
        looked = await client.post(path, json=body | {"dry_run": True})
        assert looked.status_code == 200
        _check("POST", path, 200, looked.json())
    assert dead_letters.open_count() == 1
    gone = await client.post("/dlq/discard", json={"ids": [1, 7], "confirm": True, "reason": "spam"})
    assert gone.json() == {"discarded": [1], "failed": {"7": "there is no dead letter with this id"}}
    assert db.value("SELECT result FROM dead_letter WHERE id = ?", 1) == "spam"
    at.dead("old2", ago=100 * 86_400.0)
    pruned = await client.post("/dlq/prune", json={"older_than": "90d", "confirm": True})
    assert pruned.json() == {"old": 1, "open": 1, "deleted": 1, "dry_run": False}


@pytest.mark.asyncio
async def test_a_vague_replay_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post("/dlq/replay", json={})).status_code == 400
    assert (await client.post("/dlq/replay", json={"ids": [1], "all": True})).status_code == 400


# ── delivery ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_delivery_is_held_resumed_and_tested(client: httpx.AsyncClient) -> None:
    held = await client.post("/delivery/default/pause", json={"reason": "maintenance"})
    assert (held.json()["changed"], destinations.get().paused_reason) == (True, "maintenance")
    assert (await client.get("/delivery")).json()["destinations"][0]["gate"] == "held"
    assert (await client.post("/delivery/default/resume")).json()["changed"] is True
    assert destinations.get().paused_reason is None
    tested = await client.post("/delivery/default/test")
    assert tested.json()["ok"] is False
    _check("POST", "/delivery/default/test", 200, tested.json())
    assert (await client.post("/delivery/nowhere/pause")).status_code == 404


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/sources", b"{", 400), ("/sources", b"[]", 400), ("/sources", b'{"what": NaN}', 400),
        ("/sources", b'{"what": "a", "what": "b"}', 400), ("/sources", b"[" * 100_000, 400),
        ("/sources", b"{}", 400), ("/sources", b'{"what": "a", "evil-key": 1}', 400),
        ("/sources", b'{"what": "UCaaa"}', 400), ("/sources", b'{"what": "PLxxx"}', 400),
        ("/sources", b'{"what": "../../etc/passwd"}', 400), ("/sources", b'{"what": 7}', 400),
        ("/sources", b"\xff\xfe", 400), ("/sources/0/pause", b"{}", 404), ("/sources/x/pause", b"{}", 404),
        ("/sources/999999999999999999999/pause", b"{}", 404), ("/sources/1/reset", b"{}", 400),
        ("/sources/1/reset", b'{"emit": "some"}', 400), ("/dlq/prune", b'{"older_than": "5", "confirm": true}', 400),
        ("/dlq/discard", b'{"ids": []}', 400), ("/dlq/replay", b'{"since": "later"}', 400),
        ("/nothing", b"{}", 404),
    ],
)  # fmt: skip
async def test_bad_bodies_are_a_clear_refusal(client: httpx.AsyncClient, path: str, body: bytes, status: int) -> None:
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert len(answer.json()["detail"]) > 10
    assert "evil" not in answer.text


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["(", "(?<!b)(a+)+$", "x" * 1001])
async def test_a_title_pattern_that_is_refused_adds_no_watch(client: httpx.AsyncClient, text: str) -> None:
    before = (await client.get("/sources")).json()["watches"]
    answer = await client.post("/sources", json={"what": CHANNEL, "title": {"match": text}})
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith(("title: expected a regular expression", "title: this pattern can match"))
    assert (await client.get("/sources")).json()["watches"] == before


@pytest.mark.asyncio
async def test_a_body_that_is_not_called_json_is_refused(client: httpx.AsyncClient) -> None:
    form = {"Content-Type": "text/plain"}
    assert (await client.post("/sources", content=b'{"what": "x"}', headers=form)).status_code == 415


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    ["/slo?window=1s", "/slo?window=x", "/slo?window=31d", "/audit?limit=+1", "/dlq?group_by=colour", "/trace",
     "/dlq?before=-1", "/sources?after=x", "/events?since=-1h", "/queue?x=1", "/dlq?since=%00"],
)  # fmt: skip
async def test_bad_parameters_are_400(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


# ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_reading_the_doctor_report_contacts_no_host(
    client: httpx.AsyncClient, at: OperatorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(destination_check, "check", lambda rt, name: asked.append(name))
    at.dead("dead1")
    found = (await client.get("/doctor", headers=READER)).json()
    levels = {one["check"]: one["level"] for one in found["checks"]}
    assert not asked
    assert levels["letters"] == "warn"
    assert (levels["database"], levels["worker"]) == ("ok", "ok")
    assert (levels["config"], levels["queue"]) == ("skip", "skip")
    assert "receiver" not in levels
    assert sum(found["counts"].values()) == len(found["checks"])


@pytest.mark.asyncio
async def test_an_examination_asks_receivers_and_sources_and_is_written_down(client: httpx.AsyncClient) -> None:
    assert (await client.post("/doctor", headers=READER)).status_code == 403
    answer = await client.post("/doctor")
    _check("POST", "/doctor", 200, answer.json())
    faults = {one["check"]: one for one in answer.json()["checks"] if one["level"] == "fail"}
    assert not answer.json()["ok"]
    assert faults["receiver"]["remedy"]
    assert SECRET not in answer.text
    assert [(row.action, row.status) for row in audit_rows.page(10)] == [("POST /admin/doctor", 200)]


@pytest.mark.asyncio
async def test_a_doctor_inside_leaves_the_database_open(client: httpx.AsyncClient) -> None:
    await client.post("/doctor")
    assert (await client.get("/sources")).json()["watches"]


@pytest.mark.asyncio
async def test_prune_looks_unless_it_is_told_to_remove(client: httpx.AsyncClient, at: OperatorRig) -> None:
    at.dead("old", ago=400 * 86_400.0)
    db.run("UPDATE dead_letter SET state = 'discarded', closed_at = ?", at.rt.now() - 400 * 86_400.0)
    looked = (await client.post("/prune")).json()
    assert (looked["dry_run"], looked["tables"]["dead_letter"]) == (True, 1)
    assert db.number("SELECT COUNT(*) FROM dead_letter") == 1
    assert (await client.post("/prune", json={"dry_run": False}, headers=READER)).status_code == 403
    assert db.number("SELECT COUNT(*) FROM dead_letter") == 1
    done = (await client.post("/prune", json={"dry_run": False})).json()
    _check("POST", "/prune", 200, done)
    assert (done["dry_run"], done["complete"], done["tables"]["dead_letter"]) == (False, True, 1)
    assert db.number("SELECT COUNT(*) FROM dead_letter") == 0
    assert [row.detail for row in audit_rows.page(10)] == ['{"dry_run":false}', None]


@pytest.mark.asyncio
async def test_notify_tells_what_is_wrong_and_never_whom_it_tells(client: httpx.AsyncClient, at: OperatorRig) -> None:
    secrets = at.rt.settings.secrets
    changed = secrets.model_copy(update={"notify_urls": SecretStr("json://127.0.0.1:9/canary-path")})
    at.rt.settings = at.rt.settings.model_copy(update={"secrets": changed})
    later = at.now + 3600
    at.rt.now = lambda: later
    answer = await client.get("/notify", headers=READER)
    assert answer.json()["services"] == 1
    assert "worker_silent" in [one["name"] for one in answer.json()["current"]]
    assert "canary-path" not in answer.text


@pytest.mark.asyncio
async def test_what_waits_says_why(client: httpx.AsyncClient, at: OperatorRig) -> None:
    at.event("wait1")
    await client.post("/delivery/default/pause", json={"reason": "night"})
    found = (await client.get("/waiting", headers=READER)).json()["waiting"]
    why = {one["what"]: one["why"] for one in found if one["step"] == "flush"}
    assert [re.sub("since [^:]*:[^:]*:[^:]*:", "since …:", text) for text in why.values()] == [
        "delivery is paused by the operator since …: night"
    ]


# ── the audit log ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_every_act_has_its_row_and_looking_has_none(client: httpx.AsyncClient) -> None:
    await client.post("/sources/1/pause", json={"dry_run": True})
    await client.post("/nothing")
    await client.get("/sources")
    await client.post("/sources/1/pause", headers=READER)
    rows = audit_rows.page(10)
    assert [(row.action, row.status, row.via, row.role, row.detail) for row in rows] == [
        ("POST /admin/nothing", 404, "api", "admin", None),
        ("POST /admin/sources/1/pause", 200, "api", "admin", '{"dry_run":true}'),
    ]
    assert all(row.finished_at is not None and row.client == "127.0.0.1" for row in rows)
    page = (await client.get("/audit?limit=1")).json()
    assert (page["actions"][0]["id"], page["next"]) == (rows[0].id, rows[0].id)


@pytest.mark.asyncio
async def test_secrets_in_a_body_do_not_reach_the_book(client: httpx.AsyncClient) -> None:
    await client.post("/sources", json={"what": f"{SECRET}"})
    assert SECRET not in str(audit_rows.page(10))


@pytest.mark.asyncio
async def test_an_act_that_cannot_be_written_down_is_not_done(client: httpx.AsyncClient) -> None:
    db.run("DROP TABLE audit")
    assert (await client.post("/sources/1/pause")).status_code == 503
    found = watches.find(1)
    assert found is not None
    assert found.state == "active"


def test_the_book_keeps_the_newest(sqlite_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT", 3)
    for number in range(5):
        audit.begin(float(number), via="api", role="admin", client=None, action=f"POST {number}")
    assert [row.action for row in audit_rows.page(10)] == ["POST 4", "POST 3", "POST 2"]


@pytest.mark.asyncio
async def test_notifications_are_muted_tested_and_unmuted_as_by_the_commands(
    client: httpx.AsyncClient, at: OperatorRig
) -> None:
    made = await client.post("/notify/mute", json={"duration": "2h", "problem": "quota_low", "reason": "known"})
    assert made.json() | {"since": "", "until": ""} == {
        "id": 1, "problem": "quota_low", "reason": "known", "created_by": "api", "since": "", "until": "",
    }  # fmt: skip
    assert (await client.get("/notify")).json()["mutes"] == [made.json()]
    for body in ({"duration": "10s"}, {"duration": "1h", "problem": "no_such_alert"}, {}):
        assert (await client.post("/notify/mute", json=body)).status_code == 400
    assert (await client.post("/notify/mute", json={"duration": "2h"}, headers=READER)).status_code == 403
    assert (await client.post("/notify/unmute", json={"id": 9})).json() == {"ended": 0}
    assert (await client.post("/notify/unmute", json={})).json() == {"ended": 1}
    assert (await client.get("/notify")).json()["mutes"] == []
    assert (await client.post("/notify/test")).status_code == 409
    secrets = at.rt.settings.secrets.model_copy(update={"notify_urls": SecretStr("json://127.0.0.1:9/canary-path")})
    at.rt.settings = at.rt.settings.model_copy(update={"secrets": secrets})
    assert (await client.post("/notify/test")).json() == {
        "ok": False, "targets": [{"target": "json", "accepted": False}],
    }  # fmt: skip
    told = await client.get("/notify")
    assert [(one["target"], one["result"], one["kind"]) for one in told.json()["notifications"]] == [
        ("json", "failed", "test")
    ]
    assert "canary-path" not in told.text
