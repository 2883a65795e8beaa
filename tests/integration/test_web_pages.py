"""The dashboard without a browser: access, content of the pages, effects of the forms."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from loguru import logger
from pydantic import SecretStr
from starlette.applications import Starlette

from csi import local_login
from csi.dlq import dead_letters
from csi.errors import ConfigError, StoreError
from csi.ingester.signature import sign
from csi.runtime import Runtime
from csi.status import watch_list
from csi.status.problems import KINDS, Problem
from csi.status.verdict import StatusVerdict
from csi.store import db, destinations, heartbeats, hosts, incidents, mutes, notification_log
from csi.store.database_faults import LOCKED
from csi.store.models import Event, Watch
from csi.store.queries import audit_rows
from csi.token_guess_limit import GUESSES
from csi.web import guards
from csi.web import page_rendering as page
from csi.web.app import create_app
from csi.web.formatting import stamp
from csi.web.health import CANNOT_READ
from csi.web.pages import pages
from csi.web.pages.events import curl_command
from ops.screenshot import READ_TOKEN, TOKEN, add_event, bury, furnish, open_show
from tests.fakes.fired_alert import fire_alert
from tests.fakes.pages import ROOT, rows
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver

PATHS = [
    "/",
    "/sources",
    "/sources/1",
    "/events",
    "/events/1",
    "/dead-letters",
    "/dead-letters/1",
    "/destinations",
    "/inbound",
    "/destinations/default",
    "/schedule",
    "/notifications",
    "/actions",
]
HOSTILE = """</title><script>window.hit=1</script><img src=x onerror="window.hit=1">'"&{{7*7}}{% raw %}\u202e"""


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    found = open_show(tmp_path)
    furnish(found, events_a_day=20)
    return found


@pytest.fixture
def app(rt: Runtime) -> Starlette:
    return create_app(lambda: rt)


@pytest_asyncio.fixture
async def guest(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as one:
        yield one


@pytest_asyncio.fixture
async def client(guest: httpx.AsyncClient) -> httpx.AsyncClient:
    await sign_in(guest)
    return guest


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    sink = logger.add(lambda message: lines.append({"message": message.record["message"], **message.record["extra"]}))
    yield lines
    logger.remove(sink)


async def sign_in(client: httpx.AsyncClient, token: str = TOKEN) -> httpx.Response:
    return await client.post("/login", data={"token": token, "next": "/"})


async def form_token(client: httpx.AsyncClient) -> str:
    found = re.search(r'name="form_token" value="(\w+)"', (await client.get("/actions")).text)
    assert found
    return found[1]


async def act(client: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    return await client.post(path, data={"form_token": await form_token(client), **fields})


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
@pytest.mark.parametrize("path", PATHS)
async def test_without_a_session_only_the_sign_in_is_shown(guest: httpx.AsyncClient, path: str) -> None:
    answer = await guest.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login")
    assert answer.text == ""
    assert (await guest.post(path)).status_code in (401, 405)


@pytest.mark.asyncio
async def test_a_login_link_signs_in_once(rt: Runtime, guest: httpx.AsyncClient) -> None:
    assert "csi login-link" in (await guest.get("/login")).text
    state = rt.settings.csi.state_dir
    key = local_login.make_key(state, local_login.SIDECAR_LINK_FILE)
    assert (await guest.get(f"/login?key={key}x")).status_code == 403
    assert "<form" in (await guest.head(f"/login?key={key}") and await guest.get("/login")).text
    answer = await guest.get(f"/login?key={key}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert (await guest.get("/actions")).status_code == 200
    guest.cookies.clear()
    refused = await guest.get(f"/login?key={key}")
    assert refused.status_code == 403
    assert "csi login-link" in refused.text
    key = local_login.make_key(state, local_login.SIDECAR_LINK_FILE)
    os.utime(state / local_login.SIDECAR_LINK_FILE, (1.0, 1.0))
    assert (await guest.get(f"/login?key={key}")).status_code == 403, "too old"
    assert (await guest.get("/actions")).status_code == 303


@pytest.mark.asyncio
async def test_guessed_keys_of_login_links_are_slowed_down(guest: httpx.AsyncClient) -> None:
    codes = [(await guest.get("/login?key=guess")).status_code for _ in range(GUESSES + 1)]
    assert codes == [403] * GUESSES + [429]


@pytest.mark.asyncio
async def test_icons_are_loaded_from_other_hosts_only_where_that_is_allowed(
    rt: Runtime, client: httpx.AsyncClient
) -> None:
    icon = "https://icons.example/a.png"
    with db.connection(), db.writing():
        db.run("UPDATE watches SET icon_url = ? WHERE id = 1", icon)
    for allowed in (False, True):
        web = rt.settings.web.model_copy(update={"remote_icons": allowed})
        rt.settings = rt.settings.model_copy(update={"web": web})
        for path in ("/sources", "/sources/1"):
            answer = await client.get(path)
            assert (f'src="{icon}"' in answer.text) is allowed
            assert ("https:" in answer.headers["content-security-policy"]) is allowed


@pytest.mark.asyncio
async def test_without_a_token_only_what_readyz_tells_is_shown(tmp_path: Path, guest: httpx.AsyncClient) -> None:
    closed = open_show(tmp_path, CSI_ADMIN_TOKEN="", CSI_ADMIN_READ_TOKEN="")
    transport = httpx.ASGITransport(app=create_app(lambda: closed))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in (*PATHS, "/login"):
            answer = await client.get(path)
            assert answer.status_code == 403
            assert "CSI_ADMIN_TOKEN" in answer.text
            for text in ("Rust from scratch", "PL000", "UC000", "ownership", "ua_overloaded"):
                assert text not in answer.text
        assert (await client.post("/login", data={"token": ""})).status_code == 403


@pytest.mark.asyncio
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN.upper(), "ü", "x" * 100_000, "\x00"])
async def test_a_wrong_token_opens_nothing(guest: httpx.AsyncClient, token: str, logged: list[dict[str, Any]]) -> None:
    answer = await sign_in(guest, token)
    assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None)
    assert any(line["message"] == "dashboard sign-in refused" for line in logged)
    assert len(token) < 2 or token not in str(logged)


@pytest.mark.asyncio
async def test_the_cookie_is_kept_from_scripts_and_other_sites(guest: httpx.AsyncClient) -> None:
    plain = (await sign_in(guest)).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(plain.split("; "))
    assert "Secure" not in plain
    assert TOKEN not in plain
    by_tls = await guest.post("/login", data={"token": TOKEN}, headers={"Origin": "https://127.0.0.1"})
    assert "Secure" in by_tls.headers["set-cookie"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "wanted", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", "/\nx", "/ü"]
)
async def test_sign_in_never_redirects_to_another_site(guest: httpx.AsyncClient, wanted: str) -> None:
    answer = await guest.post("/login", data={"token": TOKEN, "next": wanted})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.asyncio
async def test_the_page_that_was_wanted_comes_after_signing_in(guest: httpx.AsyncClient) -> None:
    shown = await guest.get((await guest.get("/sources")).headers["location"])
    assert 'name="next" value="/sources"' in shown.text
    assert (await guest.post("/login", data={"token": TOKEN, "next": "/sources"})).headers["location"] == "/sources"


@pytest.mark.asyncio
async def test_a_reader_looks_and_cannot_act(guest: httpx.AsyncClient) -> None:
    await sign_in(guest, READ_TOKEN)
    text = (await guest.get("/sources")).text
    assert "Rust from scratch" in text
    assert "Poll now" not in text
    assert (await act(guest, "/sources/1/pause")).status_code == 403
    assert Watch.get_by_id(1).state == "active"
    assert audit_rows.page(10) == []


@pytest.mark.asyncio
async def test_a_form_needs_its_token_and_its_own_site(client: httpx.AsyncClient) -> None:
    token = await form_token(client)
    assert (await client.post("/sources/1/pause", data={})).status_code == 403
    changed = token[:-1] + ("1" if token.endswith("0") else "0")
    assert (await client.post("/sources/1/pause", data={"form_token": changed})).status_code == 403
    for header in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await client.post("/sources/1/pause", data={"form_token": token}, headers=header)).status_code == 403
    assert Watch.get_by_id(1).state == "active"


@pytest.mark.asyncio
async def test_a_foreign_host_sees_nothing(app: Starlette) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://evil.example") as client:
        for path in ("/", "/login"):
            assert (await client.get(path)).status_code == 421
        assert (await sign_in(client)).status_code == 421


@pytest.mark.asyncio
async def test_signing_out_ends_the_session_for_a_stolen_cookie_too(client: httpx.AsyncClient) -> None:
    stolen = client.cookies["csi_session"]
    assert (await act(client, "/logout")).headers["location"] == "/login"
    client.cookies.set("csi_session", stolen)
    assert (await client.get("/sources")).status_code == 303


@pytest.mark.asyncio
async def test_a_session_that_signed_out_stays_out_after_a_restart(rt: Runtime, client: httpx.AsyncClient) -> None:
    stolen = client.cookies["csi_session"]
    await act(client, "/logout")
    restarted = httpx.ASGITransport(app=create_app(lambda: rt))
    cookies = {"csi_session": stolen}
    async with httpx.AsyncClient(transport=restarted, base_url="http://127.0.0.1", cookies=cookies) as thief:
        assert (await thief.get("/sources")).status_code == 303
    assert (rt.settings.csi.state_dir / guards.SIGNED_OUT_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_guessing_tokens_locks_the_address_out_for_a_minute(guest: httpx.AsyncClient) -> None:
    for _ in range(GUESSES):
        assert (await sign_in(guest, "wrong")).status_code == 401
    assert (await sign_in(guest)).status_code == 429


@pytest.mark.asyncio
async def test_numbers_that_no_row_can_have_are_not_found(client: httpx.AsyncClient) -> None:
    for path in (f"/dead-letters/{2**63}", f"/events/{2**64}", f"/dead-letters/{10**30}"):
        assert (await client.get(path)).status_code == 404


@pytest.mark.asyncio
async def test_a_form_has_limits(client: httpx.AsyncClient) -> None:
    assert (await client.post("/sources/1/pause", content=b"x" * (guards.MAX_BODY + 1))).status_code == 413
    assert (await client.post("/sources/1/pause", content="&".join(f"a{n}=1" for n in range(500)))).status_code == 400
    assert (await client.post("/sources/1/pause", content=b"\xff=\xff")).status_code == 400


@pytest.mark.asyncio
async def test_switched_off_it_is_404_and_the_rest_stays(client: httpx.AsyncClient, rt: Runtime) -> None:
    features = rt.settings.features.model_copy(update={"dashboard": False})
    rt.settings = rt.settings.model_copy(update={"features": features})
    assert (await client.get("/")).status_code == 404
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/admin/events", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
@pytest.mark.parametrize("path", PATHS)
async def test_every_page_has_no_inline_code_and_nothing_from_elsewhere(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", text) == []
    assert {found for found in re.findall(r'(?:src|action)="([^"]*)"', text) if not found.startswith("/")} == set()


@pytest.mark.asyncio
async def test_hostile_text_is_only_text(client: httpx.AsyncClient, rt: Runtime) -> None:
    with db.connection():
        watch = Watch.get_by_id(1)
        Watch.update(name=HOSTILE, last_error=HOSTILE, note=HOSTILE, health="suspect").where(Watch.id == 1).execute()
        number = add_event(watch, 9_000, rt.now(), "urgent", HOSTILE)
        letter = bury(watch, 9_001, rt.now(), HOSTILE, HOSTILE, "event", 422)
        destinations.change("default", paused_reason=HOSTILE, paused_at=rt.now(), last_error=HOSTILE)
        hosts.begin_outage(hosts.get(HOSTILE), rt.now(), HOSTILE, 3)
    for path in ("/", "/sources", "/sources/1", "/events", f"/events/{number}", "/dead-letters", "/schedule",
                 f"/dead-letters/{letter}", f"/events?q={HOSTILE}", f"/sources?q={HOSTILE}"):  # fmt: skip
        text = (await client.get(path)).text
        assert text.startswith("<!doctype html>")
        assert "<script>window" not in text
        assert "<img src=x" not in text
        assert "window.hit=1" in unescape(text), path
        assert "49" not in re.findall(r"\{\{7\*7\}\}|&#?\w+;49", text)


@pytest.mark.asyncio
async def test_events_and_letters_are_named_by_their_titles_and_lead_to_each_other(
    client: httpx.AsyncClient, rt: Runtime
) -> None:
    with db.connection():
        letter = bury(Watch.get_by_id(1), 9_002, rt.now(), "A title to find", "http 422", "event", 422)
        number = Event.select().order_by(Event.id.desc()).get().id
    for path in ("/sources/1", "/dead-letters", f"/dead-letters/{letter}", f"/events/{number}"):
        assert "A title to find" in (await client.get(path)).text, path
    assert f'href="/dead-letters/{letter}"' in (await client.get(f"/events/{number}")).text


class Turned(HTMLParser):
    """The element that directly holds each text with a mark that turns the line around."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.holders: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "img", "input", "link", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "\u202e" in data:
            self.holders.add(self.open[-1])


@pytest.mark.asyncio
async def test_marks_that_turn_the_line_end_with_their_element(client: httpx.AsyncClient, rt: Runtime) -> None:
    title = "\u202edrawkcab"
    with db.connection():
        watch = Watch.get_by_id(1)
        Watch.update(name=title, last_error=title, note=title, health="suspect").where(Watch.id == 1).execute()
        number = add_event(watch, 9_000, rt.now(), "urgent", title)
        letter = bury(watch, 9_001, rt.now(), title, title, "event", 422)
    css = (await client.get(re.findall(r'href="(/static/dashboard[^"]*)"', (await client.get("/")).text)[0])).text
    isolated = {*re.findall(r"^(.*) \{ unicode-bidi: isolate; \}", css, re.MULTILINE)[0].split(", "), "bdi", "title"}
    for path in ("/sources", "/sources/1", "/events", f"/events/{number}", "/dead-letters", f"/dead-letters/{letter}"):
        page = Turned()
        page.feed((await client.get(path)).text)
        assert "bdi" in page.holders, path
        assert page.holders <= isolated, path


@pytest.mark.asyncio
async def test_no_secret_is_on_any_page(client: httpx.AsyncClient, rt: Runtime) -> None:
    secrets = ("show-shared-secret-0123", "show-api-key-0123", TOKEN, READ_TOKEN)
    with db.connection():
        said = " ".join(secrets)
        watch = Watch.get_by_id(1)
        letter = bury(watch, 9_001, rt.now(), "A title", f"http 500 {said}", "event", 500)
        destinations.change("default", paused_reason=said, paused_at=rt.now())
        db.run("UPDATE delivery_attempts SET answer = ?, reason = ?", said, said)
        db.run("UPDATE watches SET last_error = ?, note = ?, health = 'suspect'", said, said)
        db.run("UPDATE dead_letter SET error_reason = ?", said)
    for path in (*PATHS, f"/dead-letters/{letter}"):
        text = unescape((await client.get(path)).text)
        assert [secret for secret in secrets if secret in text] == [], path


@pytest.mark.asyncio
async def test_the_overview_says_what_waits_and_why(client: httpx.AsyncClient, rt: Runtime) -> None:
    text = (await client.get("/")).text
    assert "the batch of lane " in text
    assert "No problems." in text
    with db.connection():
        destinations.change("default", circuit="open", reason="http 401", opened_at=rt.now())
        heartbeats.write("worker", rt.now() - 500, rt.now() - 900)
        hosts.begin_outage(hosts.get("127.0.0.1:9"), rt.now() - 60, "http 500", 7)
    text = (await client.get("/")).text
    assert "Down: 2 problems need attention" in text
    assert "From this follows" in text, "a dead worker explains an outage that it saw"
    assert "No problems." not in text
    for said in (
        "circuit breaker of destination default is open",
        "last heartbeat was",
        "upstream outage: 7 watches",
        "authentication failed (401)",
    ):
        assert said in text


@pytest.mark.asyncio
async def test_the_overview_says_what_is_known_of_a_receiver(client: httpx.AsyncClient, rt: Runtime) -> None:
    now = rt.now()
    with db.connection():
        destinations.change(
            "default",
            answered_at=now,
            confirms_counts=False,
            certificate_expires_at=now + 30 * 86_400 + 60,
            last_failure_at=now,
            last_error="connect: connection refused",
        )
    text = (await client.get("/")).text
    for said in ("certificate expires in 30 days", "does not confirm counts", "<small>connection refused</small>"):
        assert said in text
    with db.connection():
        destinations.change("default", answered_at=None, last_failure_at=None, last_success_at=None)
    assert "not contacted yet" in (await client.get("/")).text


def report_incident(rt: Runtime) -> int:
    incidents.report(
        *("dead_letters", "channel A"),
        what="items of channel A were missed",
        cause="the feed was away for 3 hours",
        effect="they are not delivered",
        remedy="set `YOUTUBE_API_KEY` or `via: both`",
        now=rt.now() - 600,
        events=36,
    )
    return incidents.unacknowledged()[0].id


@pytest.mark.asyncio
async def test_a_problem_has_its_cause_its_effect_its_remedy_and_links(client: httpx.AsyncClient, rt: Runtime) -> None:
    with db.connection():
        number = report_incident(rt)
    text = (await client.get("/")).text
    case, *_ = re.findall(r"<article.*?</article>", text, re.DOTALL)
    shown = " ".join(unescape(re.sub(r"<[^>]+>", " ", case)).split())
    assert "Degraded: 1 problem needs attention" in text
    for said in (
        "items of channel A were missed: the feed was away for 3 hours",
        stamp(rt.now() - 600)[:15],
        "10 min ago",
        "they are not delivered; 36 events are affected",
        "set YOUTUBE_API_KEY Copy or via: both Copy ; then",
        f"csi problems ack {number}",
    ):
        assert said in shown
    assert '<code id="problem-1-2">YOUTUBE_API_KEY</code>' in case
    assert 'href="/docs/runbook#dead-letters"' in case
    assert 'href="/dead-letters"' in case
    elsewhere = (await client.get("/sources")).text
    assert '<a href="/#problems">items of channel A were missed: the feed was away for 3 hours</a>' in elsewhere


@pytest.mark.asyncio
async def test_an_incident_is_acknowledged_once_and_by_admins_only(client: httpx.AsyncClient, rt: Runtime) -> None:
    with db.connection():
        number = report_incident(rt)
    path = f"/problems/{number}/acknowledge"
    assert f'action="{path}"' in (await client.get("/")).text
    assert (await act(client, path)).headers["location"] == "/"
    text = (await client.get("/")).text
    assert f"Incident {number} is acknowledged." in text
    assert "No problems." in text
    with db.connection():
        assert db.fetch("SELECT acknowledged_by FROM incidents") == [("dashboard",)]
        assert audit_rows.page(1)[0].action == f"POST {path}"
    for other in (path, "/problems/999999999999999999999/acknowledge", "/problems/x/acknowledge"):
        await act(client, other)
        assert "acknowledged already" in (await client.get("/")).text
    with db.connection():
        number = report_incident(rt)
    await sign_in(client, READ_TOKEN)
    assert "were missed" in (text := (await client.get("/")).text)
    assert "/acknowledge" not in text
    assert (await act(client, f"/problems/{number}/acknowledge")).status_code == 403
    with db.connection():
        assert len(incidents.unacknowledged()) == 1


@pytest.mark.asyncio
async def test_notices_are_apart_and_do_not_change_the_headline(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = Problem("dead_letters", "x", "notice", "the receiver confirms no counts", "none is known", "nothing")
    monkeypatch.setattr(page, "verdict", lambda rt: StatusVerdict("ok", (notice,)))
    text = (await client.get("/")).text
    assert "No problems." in text
    assert 'id="problems"' not in text
    assert "the receiver confirms no counts" in text.partition('id="notices"')[2]
    assert "confirms no counts" not in (await client.get("/sources")).text


@pytest.mark.asyncio
@pytest.mark.parametrize("name", KINDS)
async def test_each_kind_of_problem_links_to_a_part_of_a_page_that_exists(client: httpx.AsyncClient, name: str) -> None:
    path, _, part = KINDS[name].page.partition("#")
    answer = await client.get(path)
    assert answer.status_code == 200
    assert not part or f'id="{part}"' in answer.text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreError("/var/lib/csi/csi.db: database is locked"), f"{LOCKED.text}: {LOCKED.remedy}"),
        (StoreError("10.0.0.5: strange"), CANNOT_READ),
        (ConfigError("/etc/csi/config.yaml:3: unknown key"), CANNOT_READ),
    ],
    ids=["locked", "unknown", "configuration"],
)
async def test_what_cannot_be_read_has_one_reason_on_every_page(error: Exception, reason: str) -> None:
    def refuse() -> Runtime:
        raise error

    transport = httpx.ASGITransport(app=create_app(refuse))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in ("/", "/readyz", "/livez", "/admin/status", "/metrics"):
            answer = await client.get(path)
            if path == "/metrics" and isinstance(error, StoreError):
                # Prometheus drops the page of a 503: the database is the one problem of this page.
                assert answer.status_code == 200
                assert re.findall(r"^csi_problems{.*} [^0].*", answer.text, re.MULTILINE) == [
                    'csi_problems{problem="storage"} 1.0'
                ]
            else:
                assert answer.status_code == 503
                assert reason[1:] in unescape(answer.text), path
            assert not re.search(r"/var/|10\.0|/etc/csi/config", answer.text)
        assert 'href="/docs/runbook"' in (await client.get("/")).text


@pytest.mark.asyncio
async def test_events_are_found_by_words_ids_and_filters(client: httpx.AsyncClient, rt: Runtime) -> None:
    with db.connection():
        number = add_event(Watch.get_by_id(1), 9_000, rt.now(), "urgent", "Zwölf Äpfel & 100 %_x")
        event_id = Event.get_by_id(number).event_id

    async def found(query: str) -> bool:
        return f'href="/events/{number}"' in (await client.get(f"/events?{query}")).text

    assert await found("q=zwölf") or await found("q=Zwölf")
    assert await found("q=100 %25_x")
    assert not await found("q=100 %25%25")
    assert await found(f"q={event_id}")
    assert await found("state=pending&source=youtube_playlist&tier=urgent&since=1h")
    assert not await found("state=dead")
    assert await found("state=made-up&since=never&before=x")
    assert (await client.get(f"/events/find?event_id={event_id}")).headers["location"] == f"/events/{number}"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/events/999999", "/sources/999999", "/dead-letters/999999", "/events/" + "9" * 30])
async def test_what_is_not_there_is_a_page_that_says_so(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.asyncio
async def test_a_database_that_is_gone_is_a_page_that_says_so(client: httpx.AsyncClient) -> None:
    with db.connection():
        db.run("ALTER TABLE watches RENAME TO gone")
    answer = await client.get("/sources")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "The database lacks its tables" in answer.text


@pytest.mark.asyncio
async def test_only_the_static_files_are_served_and_no_path_leads_out(guest: httpx.AsyncClient) -> None:
    for name in ("dashboard.css", "csi.css", "live.js", "icon.svg"):
        answer = await guest.get(page.asset(name))
        assert answer.status_code == 200
        assert "max-age" in answer.headers["cache-control"]
    for name in ("..%2fpage.py", "%2e%2e/page.py", "page.py", ""):
        assert (await guest.get(f"/static/{name}")).status_code == 404


def test_a_page_is_one_module_and_the_navigation_knows_it() -> None:
    assert [found.title for found in pages()] == [
        "Overview", "Sources", "Channels", "Events", "Destinations",
        "Inbound", "Dead letters", "Schedule", "Jobs", "Alerts",
        "Audit",
    ]  # fmt: skip


# ── what is done ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_a_source_is_paused_resumed_and_reset_and_it_is_written_down(client: httpx.AsyncClient) -> None:
    done = await act(client, "/sources/1/pause", **{"from": "list"})
    assert (done.status_code, done.headers["location"], Watch.get_by_id(1).state) == (303, "/sources", "paused")
    assert "Rust from scratch is paused." in (await client.get("/sources")).text
    assert "Rust from scratch is paused." not in (await client.get("/sources")).text
    await act(client, "/sources/1/resume")
    await act(client, "/sources/1/reset", emit="all")
    assert (Watch.get_by_id(1).state, Watch.get_by_id(1).first_read_at) == ("active", None)
    rows = audit_rows.page(10)
    assert [row.action for row in rows] == [f"POST /sources/1/{name}" for name in ("reset", "resume", "pause")]
    assert {(row.via, row.role, row.status) for row in rows} == {("dashboard", "admin", 303)}
    assert "form_token" not in str(rows)


@pytest.mark.asyncio
async def test_a_poll_that_fails_is_told_in_words(client: httpx.AsyncClient) -> None:
    done = await act(client, "/sources/1/poll", **{"from": "list"})
    text = (await client.get(done.headers["location"])).text
    assert '<p class="note bad"' in text


@pytest.mark.asyncio
async def test_adding_and_removing(client: httpx.AsyncClient) -> None:
    channel = "UC" + "z" * 22
    done = await act(client, "/sources", what=channel, name="Zed")
    number = int(done.headers["location"].rpartition("/")[2])
    assert Watch.get_by_id(number).name == "Zed"
    await act(client, f"/sources/{number}/remove")
    assert Watch.get_by_id(number).state == "active"
    await act(client, f"/sources/{number}/remove", sure="yes")
    assert Watch.get_by_id(number).state == "removed"
    refused = await act(client, "/sources/1/remove", sure="yes")
    assert "in the configuration" in unescape((await client.get(refused.headers["location"])).text)
    wrong = await act(client, "/sources", what="nonsense !!")
    assert (wrong.status_code, "Not added" in wrong.text, 'value="nonsense !!"' in wrong.text) == (400, True, True)
    for text in ("UCaaa", "PLxxx"):
        wrong = await act(client, "/sources", what=text)
        assert (wrong.status_code, "give the" in unescape(wrong.text)) == (400, True), text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "left"),
    [({"id": "1"}, 4), ({"error": "http 503 ua_overloaded"}, 2), ({"cause": "event"}, 3), ({"all": "yes"}, 0), ({}, 5)],
    ids=["one", "group", "filter", "all", "nothing"],
)
async def test_dead_letters_go_out_again(client: httpx.AsyncClient, fields: dict[str, str], left: int) -> None:
    done = await act(client, "/dead-letters/replay", **fields)
    assert (done.status_code, dead_letters.open_count()) == (303, left)
    text = (await client.get("/dead-letters")).text
    assert ("pending again; the worker sends them" in text) == bool(fields)


@pytest.mark.asyncio
async def test_an_event_and_a_selection_of_events_are_sent_again(rt: Runtime, client: httpx.AsyncClient) -> None:
    sql = "SELECT DISTINCT be.event_pk FROM batch_events be JOIN events e ON e.id = be.event_pk"
    first, second = db.column(f"{sql} WHERE e.state = 'delivered' ORDER BY 1 LIMIT 2")
    assert f'name="event-{db.value("SELECT MAX(id) FROM events")}"' in (await client.get("/events")).text
    assert "Send again" in (await client.get(f"/events/{first}")).text
    one = await act(client, "/events/resend", id=str(first))
    assert one.headers["location"] == f"/events/{first}"
    assert "1 event, 1 to default: pending again" in (await client.get(f"/events/{first}")).text
    both = await act(client, "/events/resend", **{f"event-{first}": "yes", f"event-{second}": "yes", "event-x": "yes"})
    assert both.headers["location"] == "/events"
    assert "queued for this destination already" in (await client.get("/events")).text
    assert db.column("SELECT event_pk FROM outbox WHERE tier = 'resend' ORDER BY 1") == [first, second]
    await act(client, "/events/resend")
    assert "nothing is sent again" in (await client.get("/events")).text


@pytest.mark.asyncio
async def test_a_dead_letter_is_discarded_only_after_confirmation(client: httpx.AsyncClient) -> None:
    await act(client, "/dead-letters/discard", id="1")
    assert dead_letters.open_count() == 5
    await act(client, "/dead-letters/discard", id="1", sure="yes", reason="spam")
    assert (
        db.value("SELECT state FROM dead_letter WHERE id = ?", 1),
        db.value("SELECT result FROM dead_letter WHERE id = ?", 1),
    ) == ("discarded", "spam")


@pytest.mark.asyncio
async def test_delivery_is_paused_resumed_and_tested(client: httpx.AsyncClient) -> None:
    await act(client, "/destinations/default/pause")
    assert destinations.get().paused_reason == "by the dashboard"
    assert "paused by the operator" in (await client.get("/")).text
    await act(client, "/destinations/default/resume")
    assert destinations.get().paused_reason is None
    await act(client, "/destinations/default/test")
    assert "default: no response after" in (await client.get("/")).text
    await act(client, "/destinations/nowhere/pause")
    assert "there is no destination" in (await client.get("/")).text


@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "python3"))), reason="bash, curl and python3 are needed")
def test_the_curl_command_delivers_and_holds_no_secret(tmp_path: Path) -> None:
    event = {"event_id": "e'1", "subject": {"title": 'Über $HOME `id` "x" \\ \''}}
    text = curl_command(event, "csi-test")
    assert SECRET not in text
    with ScriptedReceiver() as receiver:
        env = {"PATH": "/usr/bin:/bin", "CSI_UA_ENDPOINT": receiver.url, "CSI_UA_SHARED_SECRET": SECRET}
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, "")
        (request,) = receiver.requests
    assert request.envelope["events"] == [event]
    signed = sign(SECRET, request.headers["x-csi-timestamp"], request.headers["x-csi-request-id"], request.body)
    assert request.headers["x-csi-signature"].removeprefix("sha256=") == signed.removeprefix("sha256=")
    assert request.headers["authorization"] == f"Bearer {SECRET}"


# ── notifications ───────────────────────────────────────────────────────────────────────────────────────


def with_targets(rt: Runtime, urls: str) -> None:
    secrets = rt.settings.secrets.model_copy(update={"notify_urls": SecretStr(urls)})
    rt.settings = rt.settings.model_copy(update={"secrets": secrets})


@pytest.mark.asyncio
async def test_the_page_of_notifications_shows_targets_without_their_tokens_and_the_last_results(
    client: httpx.AsyncClient, rt: Runtime
) -> None:
    assert "Neither a notification target nor a heartbeat URL is set." in (await client.get("/notifications")).text
    with_targets(rt, "tgram://canary-bot-token/42 mailto://canary-user:canary-word@example.org")
    with db.connection():
        attempt = {"kind": "alert", "severity": "warning", "title": "receiver away (default)", "body": "canary-body"}
        notification_log.record("alert:1:firing", "tgram", **attempt, error=None, now=rt.now())
        notification_log.record("alert:1:firing", "mailto", **attempt, error="did not answer", now=rt.now())
        fire_alert("quota_low", "api", "few units are left", rt.now() - 900)
    text = (await client.get("/notifications")).text
    assert "canary" not in text
    for said in (
        "tgram://********",
        "mailto://********",
        ">sent<",
        ">failed<",
        "mailto does not accept notifications.",
        "did not answer",
        "few units are left",
    ):
        assert said in text


@pytest.mark.asyncio
async def test_alerts_are_muted_and_unmuted_by_the_dashboard_and_it_is_in_the_audit_log(
    client: httpx.AsyncClient, rt: Runtime
) -> None:
    with db.connection():
        fire_alert("quota_low", "api", "few units are left", rt.now() - 900)
    assert ">muted<" not in (await client.get("/notifications")).text
    done = await act(client, "/notifications/mute", duration="2h", problem="quota_low", reason="<b>known</b>")
    assert (done.status_code, done.headers["location"]) == (303, "/notifications")
    text = (await client.get("/notifications")).text
    assert "quota_low is muted for 2h." in text
    assert "&lt;b&gt;known&lt;/b&gt;" in text
    assert ">muted<" in text
    (mute,) = mutes.active(rt.now())
    assert (mute.problem, mute.until - mute.since, mute.created_by) == ("quota_low", 7200.0, "dashboard")
    await act(client, "/notifications/unmute", id=str(mute.id))
    assert mutes.active(rt.now()) == []
    assert ">muted<" not in (await client.get("/notifications")).text
    assert [row.action for row in audit_rows.page(2)] == ["POST /notifications/unmute", "POST /notifications/mute"]
    for fields in ({"duration": "99y"}, {"duration": "1h", "problem": "no_such_alert"}):
        await act(client, "/notifications/mute", **fields)
    await act(client, "/notifications/unmute", id="77")
    assert mutes.active(rt.now()) == []


@pytest.mark.asyncio
async def test_the_test_button_sends_a_message_and_says_which_target_refused_it(
    client: httpx.AsyncClient, rt: Runtime
) -> None:
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as notification_target:
        address = notification_target.url.split("/")[2]
        with_targets(rt, f"json://{address}/canary-path")
        await act(client, "/notifications/test")
        assert "Every target accepted the test message." in (await client.get("/notifications")).text
        assert len(notification_target.requests) == 1
        with_targets(rt, f"json://{address}/canary-path json://127.0.0.1:1/canary-path")
        await act(client, "/notifications/test")
    text = (await client.get("/notifications")).text
    assert "json 2: the service refused the message or did not answer." in text
    assert "canary" not in text


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["test", "mute", "unmute"])
async def test_a_reader_and_a_form_of_another_site_change_no_notification(guest: httpx.AsyncClient, what: str) -> None:
    await sign_in(guest, READ_TOKEN)
    page_text = (await guest.get("/notifications")).text
    assert f'action="/notifications/{what}"' not in page_text
    assert (await act(guest, f"/notifications/{what}", duration="2h", id="1")).status_code == 403
    await sign_in(guest)
    assert (await guest.post(f"/notifications/{what}", data={"duration": "2h"})).status_code == 403


# ── watches: lists, forms ───────────────────────────────────────────────────────────────────────────────


def _shown(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'<tr id="watch-(\d+)"', text)]


@pytest.mark.asyncio
async def test_watches_are_sorted_filtered_and_shown_page_by_page(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {row.id: row.name for row in Watch.select()}
    text = (await client.get("/sources?sort=name")).text
    assert [names[number] for number in _shown(text)] == sorted(names.values(), key=str.casefold)
    assert 'aria-sort="ascending"' in text
    back = _shown((await client.get("/sources?sort=-name")).text)
    assert back == _shown(text)[::-1]
    playlists = await client.get("/sources?source=youtube_playlist&q=ch")
    assert [names[number] for number in _shown(playlists.text)] == ["Kitchen chemistry", "Rust from scratch"]
    assert _shown((await client.get("/sources?show=paused")).text) == [Watch.get(Watch.name == "Loom").id]
    monkeypatch.setattr(watch_list.watch_list, "__defaults__", (4,))
    second = (await client.get("/sources?sort=name&page=2")).text
    assert (_shown(second), "Page 2 of 3" in second) == (_shown(text)[4:8], True)
    assert "/sources?sort=name&amp;page=3" in second


@pytest.mark.asyncio
async def test_ticked_watches_are_changed_together(client: httpx.AsyncClient) -> None:
    await act(client, "/sources/bulk", act="pause", **{"watch-1": "yes", "watch-2": "yes", "watch-99": "yes"})
    assert "Pause: done for 2 watches." in (await client.get("/sources")).text
    assert {row.id for row in Watch.select().where(Watch.state == "paused")} >= {1, 2}
    await act(client, "/sources/bulk", act="resume", all="yes", show="paused")
    assert Watch.select().where(Watch.state == "paused").count() == 0
    await act(client, "/sources/bulk", act="remove", sure="yes", **{"watch-1": "yes"})
    assert "Refused for 1: Rust from scratch: " in unescape((await client.get("/sources")).text)
    for fields in ({"act": "remove", "watch-1": "yes"}, {"act": "pause"}, {"act": "explode", "watch-1": "yes"}):
        await act(client, "/sources/bulk", **fields)
        assert '<p class="note bad"' in (await client.get("/sources")).text
    assert Watch.select().where(Watch.state == "active").count() == Watch.select().count()


async def _added(client: httpx.AsyncClient, **fields: str) -> int:
    done = await act(client, "/sources", what="UC" + "z" * 22, **fields)
    return int(done.headers["location"].rpartition("/")[2])


def _fields(text: str) -> dict[str, str]:
    found = re.findall(r'<input (?:type="hidden" )?name="(\w+)" value="([^"]*)"', text)
    return {name: unescape(value) for name, value in found if name != "form_token"}


@pytest.mark.asyncio
async def test_a_watch_is_added_and_changed_with_all_options(client: httpx.AsyncClient) -> None:
    number = await _added(
        client, name="Zed", poll_interval_seconds="5m", tags="news, ai", first_poll="last", first_poll_last="3",
        kinds="sent", title_match="(?i)rust", title_not="", min_duration_seconds="1m", max_duration_seconds="",
        via="feed", **{"include-video": "yes", "include-live": "yes"},
    )  # fmt: skip
    row = Watch.get_by_id(number)
    assert (row.interval_seconds, row.tags_json, row.first_poll) == (300, '["news", "ai"]', '{"last": 3}')
    assert json.loads(row.filters_json) == {
        "include": ["video", "live"], "title": {"match": "(?i)rust"}, "min_duration_seconds": 60,
    }  # fmt: skip
    form = _fields((await client.get(f"/sources/{number}/edit")).text)
    assert (form["poll_interval_seconds"], form["tags"], form["title_match"]) == ("5 min", "news, ai", "(?i)rust")
    done = await act(client, f"/sources/{number}", **(form | {"poll_interval_seconds": "", "tags": "", "via": ""}))
    assert done.status_code == 303
    row = Watch.get_by_id(number)
    assert (row.tags_json, row.own_interval, json.loads(row.options_json)["name"]) == ("[]", None, "Zed")
    wrong = await act(client, f"/sources/{number}", **(form | {"poll_interval_seconds": "soon"}))
    assert (wrong.status_code, 'value="soon"' in wrong.text, "Not saved" in wrong.text) == (409, True, True)


@pytest.mark.asyncio
async def test_of_two_operators_the_second_is_told_what_changed_and_may_save_again(client: httpx.AsyncClient) -> None:
    number = await _added(client, poll_interval_seconds="5m")
    form = _fields((await client.get(f"/sources/{number}/edit")).text)
    assert (await act(client, f"/sources/{number}", **(form | {"poll_interval_seconds": "1h"}))).status_code == 303
    late = await act(client, f"/sources/{number}", **(form | {"name": "Mine"}))
    assert late.status_code == 409
    assert "changed meanwhile: interval from 300 s to 3600 s" in unescape(late.text)
    assert (Watch.get_by_id(number).interval_seconds, Watch.get_by_id(number).name) == (3600, None)
    again = await act(client, f"/sources/{number}", **_fields(late.text))
    assert (again.status_code, Watch.get_by_id(number).name) == (303, "Mine")


@pytest.mark.asyncio
async def test_a_configured_watch_is_changed_without_its_file_and_taken_back(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/sources/1/edit")
    assert "sources.youtube_playlist.playlists" in page.text
    form = _fields(page.text)
    assert (await act(client, "/sources/1", **(form | {"name": "Mine"}))).status_code == 303
    row = Watch.get_by_id(1)
    assert (row.name, row.origin, row.options_json) == ("Mine", "config", '{"name": "Mine"}')
    assert "changed here: name" in (await client.get("/sources/1")).text
    form = _fields((await client.get("/sources/1/edit")).text)
    assert (await act(client, "/sources/1", from_file="yes", **form)).status_code == 303
    row = Watch.get_by_id(1)
    assert (row.name, row.options_json) == ("Rust from scratch", None)


@pytest.mark.asyncio
async def test_ticked_dead_letters_are_discarded_or_replayed_together(client: httpx.AsyncClient) -> None:
    ticked = {"letter-1": "yes", "letter-2": "yes", "ticked": "yes"}
    await act(client, "/dead-letters/discard", **ticked)
    assert dead_letters.open_count() == 5
    await act(client, "/dead-letters/discard", sure="yes", **ticked)
    assert (dead_letters.open_count(), dead_letters.find(2).state) == (3, "discarded")
    await act(client, "/dead-letters/replay", **{"letter-3": "yes", "ticked": "yes"})
    assert dead_letters.open_count() == 2
    oldest = (await client.get("/dead-letters?sort=oldest&state=all")).text
    assert re.findall(r'<tr id="letter-(\d+)"', oldest) == ["1", "2", "3", "4", "5"]
    assert '<a href="/sources/1"><bdi>Rust from scratch</bdi></a>' in oldest


@pytest.mark.asyncio
async def test_events_of_a_watch_and_of_an_interval(rt: Runtime, client: httpx.AsyncClient) -> None:
    with db.connection():
        seen = rt.now() - 7_200
        number = add_event(Watch.get_by_id(1), 9_000, seen, "urgent", "In the interval")
    start, end = stamp(seen)[:19].replace(" ", "T") + "Z", stamp(seen + 60)[:19].replace(" ", "T") + "Z"
    text = (await client.get(f"/events?watch=1&from={start}&to={end}")).text
    assert re.findall(r'<tr id="event-(\d+)"', text) == [str(number)]
    assert '<a href="/sources/1"><bdi>Rust from scratch</bdi></a>' in text
    newest = re.findall(r'<tr id="event-(\d+)"', (await client.get("/events")).text)
    oldest = re.findall(r'<tr id="event-(\d+)"', (await client.get("/events?sort=oldest")).text)
    assert [int(one) for one in newest] == sorted(map(int, newest), reverse=True)
    assert [int(one) for one in oldest] == sorted(map(int, oldest))
    assert (await client.get("/events?from=nonsense&watch=x&sort=y")).status_code == 200


# ── live parts, unknown paths, cookies ──────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_only_changed_parts_of_a_page_are_sent_again(rt: Runtime, client: httpx.AsyncClient) -> None:
    page = (await client.get("/dead-letters")).text
    assert "<!--" not in page
    first = await client.get("/dead-letters", headers={"X-CSI-Live": "1"})
    assert set(first.json()) == {"menu", "nav", "problems", "main"}
    assert "<html" not in first.text
    same = await client.get("/dead-letters", headers={"X-CSI-Live": "1", "If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    await act(client, "/dead-letters/discard", sure="yes", id="1")
    next_one = await client.get("/dead-letters", headers={"X-CSI-Live": "1", "If-None-Match": first.headers["etag"]})
    assert set(next_one.json()) == {"menu", "nav", "main"}
    assert "is discarded" in (await client.get("/dead-letters")).text, "a live request does not take the message"


@pytest.mark.asyncio
async def test_an_unknown_path_is_a_page_for_a_browser(client: httpx.AsyncClient, app: Starlette) -> None:
    html = {"Accept": "text/html,application/xhtml+xml"}
    for path in ("/nope", "/sources/999999", "/sources/x/y"):
        inside = await client.get(path, headers=html)
        assert (inside.status_code, 'id="nav"' in inside.text) == (404, True), path
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as guest:
        outside = await guest.get("/nope", headers=html)
        assert (outside.status_code, 'id="nav"' in outside.text, "<h1>404</h1>" in outside.text) == (404, False, True)
        assert (await guest.get("/nope")).headers["content-type"] == "application/problem+json"
        assert (await guest.post("/nope", headers=html)).headers["content-type"] == "application/problem+json"


@pytest.mark.asyncio
async def test_a_browser_that_keeps_no_cookie_is_told_so(guest: httpx.AsyncClient) -> None:
    assert "cookies" not in (await guest.get("/login")).text
    done = await sign_in(guest)
    guest.cookies.clear()
    sent = {"Referer": "http://127.0.0.1/login"}
    back = await guest.get(done.headers["location"], headers=sent)
    shown = await guest.get(back.headers["location"], headers=sent)
    assert "refuses cookies" in shown.text


@pytest.mark.asyncio
async def test_every_field_button_and_header_has_a_name(client: httpx.AsyncClient) -> None:
    for path in (*PATHS, "/sources/add", f"/sources/{await _added(client)}/edit"):
        text = (await client.get(path)).text
        assert [one for one in re.findall(r"<th[ >][^>]*>?", text) if 'scope="col"' not in one] == [], path
        assert re.findall(r"<th[^>]*></th>", text) == [], path


def test_the_dashboard_has_the_buttons_that_the_thirty_tasks_name() -> None:
    places = {one.title for one in pages() if one.is_listed} | {"the watch", "the event", "the destination", "–"}
    templates = Path(page.__file__).parent / "templates"
    shown = "".join(path.read_text() for path in templates.glob("*.html"))
    cells = [cells[2] for cells in rows((ROOT / "docs/tasks.md").read_text()) if len(cells) == 3]
    assert len(cells) == 30
    for cell in cells:
        place, _, button = cell.partition(": ")[0].partition(" → ")
        assert place in places, cell
        assert not button or re.search(rf"""[">]\s*{button}\s*["<]""", shown), cell
