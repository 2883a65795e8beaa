"""The audit log in words: what was done through the dashboard, the API and commands, and how it ended."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner

from csi.cli.main import cli
from csi.runtime import Runtime
from csi.status import audit_sentences
from csi.store import audit
from csi.store.models import Watch
from csi.web.app import create_app
from ops.screenshot import TOKEN, furnish, open_show


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    found = open_show(tmp_path)
    furnish(found, events_a_day=20)
    return found


@pytest_asyncio.fixture
async def client(rt: Runtime) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(lambda: rt))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
        await one.post("/login", data={"token": TOKEN, "next": "/"})
        yield one


async def act(client: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    token = re.search(r'name="form_token" value="(\w+)"', (await client.get("/actions")).text)
    assert token
    return await client.post(path, data={"form_token": token[1], **fields})


@pytest.mark.asyncio
async def test_changes_of_the_dashboard_and_the_api_are_sentences_with_results(client: httpx.AsyncClient) -> None:
    await act(client, "/sources/1/pause")
    await act(client, "/sources/1/remove", sure="yes")
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    await client.patch("/admin/sources/1", json={"route_profile": "no"}, headers=bearer)
    await client.post("/admin/dlq/discard", json={"ids": [1], "confirm": True}, headers=bearer)
    done = [(one.text, one.outcome, one.link) for one in audit_sentences.page(10)]
    assert done == [
        ("discarded dead letters", "done", None),
        ("changed the watch Rust from scratch", "failed", "/sources/1"),
        ("removed the watch Rust from scratch", "failed", "/sources/1"),
        ("paused the watch Rust from scratch", "done", "/sources/1"),
    ]
    _, patched, removed, paused = audit_sentences.page(10)
    assert paused.result == "Rust from scratch is paused."
    assert "is in the configuration" in (removed.result or "")
    assert "unknown route profile" in (patched.result or "")
    shown = (await client.get("/actions")).text
    assert 'Paused the watch <a href="/sources/1"><bdi>Rust from scratch</bdi></a>' in shown
    assert "Paused the watch" not in (await client.get("/actions?via=api")).text
    (first, *_) = (await client.get("/admin/audit", headers=bearer)).json()["actions"]
    assert (first["text"], first["outcome"], first["via"]) == ("discarded dead letters", "done", "api")


@pytest.mark.asyncio
async def test_commands_that_change_something_are_in_the_log_and_csi_audit_lists_it(
    rt: Runtime, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    channel = "UC" + "z" * 22

    def call(*words: str) -> str:
        env = {"CSI_CONFIG_PATH": str(tmp_path / "config.yaml"), "CSI_UA_SHARED_SECRET": "show-shared-secret-0123"}
        result = CliRunner().invoke(cli, list(words), env=env)
        return result.stdout

    call("sources", "add", channel, "--name", "Zed")
    call("sources", "set", channel, "--interval", "10m")
    call("sources", "pause", channel, "--dry-run")
    call("sources", "pause", channel)
    call("sources", "remove", "Rust from scratch", "--yes")
    call("dlq", "discard", "--id", "1", "--yes", "--reason", "known")
    call("delivery", "pause", "--reason", "maintenance")
    rows = {one.text: one for one in audit_sentences.page(20)}
    assert set(rows) == {
        "added a watch", "changed the watch Zed", "paused the watch Zed", "discarded dead letters",
        "paused the destination default",
    }  # fmt: skip
    assert {(one.record.via, one.outcome) for one in rows.values()} == {("cli", "done")}
    assert rows["changed the watch Zed"].result == "interval from the source's default to 600 s"
    found = json.loads(call("audit", "--json", "--limit", "2"))["actions"]
    assert [one["text"] for one in found] == ["paused the destination default", "discarded dead letters"]
    assert "paused the watch Zed" in call("audit", "--via", "cli")
    assert f'href="/sources/{Watch.get(Watch.ref == channel).id}"' in (await client.get("/actions?via=cli")).text


def test_rows_of_earlier_releases_and_unknown_actions_are_shown(rt: Runtime) -> None:
    for action, via, status in (
        ("POST /sources/1/pause", "dashboard", 303), ("POST /admin/never/heard", "api", 500),
        ("csi destinations set x", "cli", 1),
        ("CALL pause_source", "mcp", 200), ("POST /sources/1/pause", "dashboard", None),
    ):  # fmt: skip
        number = audit.begin(rt.now(), via=via, role="admin", client=None, action=action)
        if status is not None:
            audit.finish(number, rt.now(), status=status)
    assert [(one.text, one.outcome) for one in audit_sentences.page(5)] == [
        ("paused the watch Rust from scratch", "not finished"), ("CALL pause_source", "done"),
        ("changed the destination x", "failed"), ("POST /admin/never/heard", "failed"),
        ("paused the watch Rust from scratch", "done"),
    ]  # fmt: skip


def test_the_earlier_name_of_the_audit_log_of_processing_says_what_to_use() -> None:
    shown = CliRunner().invoke(cli, ["audit", "list", "--help"]).output
    assert "use csi processing audit" in shown
