"""`csi problems` and `/admin/problems`: incidents stay until the operator acknowledges them, and that is recorded."""

import getpass
import json
import os

import httpx
import pytest
from click.testing import CliRunner

from csi import clock
from csi.cli.main import cli
from csi.store import db, incidents
from csi.store.queries import audit_rows
from csi.web.app import create_app
from csi.worker.maintenance import write_heartbeat
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.in_process import InProcessPipeline

TOKEN = "problems-admin-token-01"


@pytest.fixture
def line(tmp_path):
    with db.connection():
        built = InProcessPipeline(
            tmp_path,
            clock.now,
            "http://127.0.0.1:9/",
            secrets={"CSI_ADMIN_TOKEN": TOKEN},
            sources={},
            notify={"enabled": False},
        )
        write_heartbeat(built.rt, clock.now())
        for name in ("One", "Two"):
            with db.writing():
                incidents.report(
                    *("items_missed", name),
                    what=f"youtube_channel_rss: items of {name} may have been missed",
                    cause="no key is set",
                    effect="they are not delivered",
                    remedy="set `YOUTUBE_API_KEY`",
                    now=clock.now(),
                )
        yield built


def command(tmp_path, *words):
    db.database.close()
    env = {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/", "CSI_UA_SHARED_SECRET": SECRET}
    return CliRunner().invoke(cli, ["problems", *words, "--config", str(tmp_path / "config.yaml")], env=env)


@pytest.mark.parametrize("words", [(), ("list",)], ids=["bare", "list"])
def test_problems_are_listed_with_cause_remedy_and_the_number_to_acknowledge(line, tmp_path, words):
    shown = command(tmp_path, *words)
    assert shown.exit_code == 0, shown.output
    assert "items_missed (One), degraded, incident 1, since" in shown.output
    assert "items of One may have been missed: no key is set; they are not delivered" in shown.output
    assert "csi problems ack 1" in shown.output
    assert "  more: csi docs runbook items-were-missed; dashboard page /sources\n" in shown.output
    found = json.loads(command(tmp_path, *words, "--json").stdout)
    assert (found["status"], [one["incident"] for one in found["problems"]]) == ("degraded", [1, 2])


def test_an_incident_is_acknowledged_once_and_the_audit_log_has_it(line, tmp_path):
    done = command(tmp_path, "ack", "2")
    assert (done.exit_code, done.output) == (
        0,
        "incident 2 is acknowledged: youtube_channel_rss: items of Two may have been missed\n",
    )
    assert [one.id for one in incidents.unacknowledged()] == [1]
    again = command(tmp_path, "ack", "2")
    assert again.exit_code == 1
    assert "there is no incident 2" in str(again.exception) + again.output
    failed, first = audit_rows.page(10)
    user = getpass.getuser()
    assert (first.via, first.client, first.action, first.status) == ("cli", user, "csi problems ack 2", 0)
    assert (failed.action, failed.status) == ("csi problems ack 2", 1)


def test_all_are_acknowledged(line, tmp_path):
    found = json.loads(command(tmp_path, "ack", "all", "--json").stdout)
    assert [one["incident"] for one in found["acknowledged"]] == [1, 2]
    assert incidents.unacknowledged() == []
    assert command(tmp_path).output == "no problems\n"
    assert "no incident to acknowledge" in command(tmp_path, "ack", "all").output


def test_incidents_beyond_those_that_are_shown_can_be_acknowledged(line, tmp_path):
    with db.writing():
        for number in range(incidents.SHOWN):
            incidents.report("items_missed", f"w{number}", what="x", effect="y", remedy="z", now=clock.now())
    assert command(tmp_path, "ack", str(incidents.SHOWN + 2)).exit_code == 0
    found = json.loads(command(tmp_path, "ack", "all", "--json").stdout)
    assert [one["incident"] for one in found["acknowledged"]] == list(range(1, incidents.SHOWN + 2))
    assert incidents.unacknowledged() == []


def test_a_user_without_a_name_can_acknowledge(line, tmp_path, monkeypatch):
    def no_name():
        raise OSError("no username set in the environment")

    monkeypatch.setattr(getpass, "getuser", no_name)
    assert command(tmp_path, "ack", "1").exit_code == 0
    assert audit_rows.page(1)[0].client == f"uid {os.getuid()}"


def test_what_is_no_number_is_refused(line, tmp_path):
    assert command(tmp_path, "ack", "-1").exit_code == 2
    assert command(tmp_path, "ack", "one").exit_code == 2


@pytest.mark.asyncio
async def test_the_admin_api_does_the_same_and_records_it(line):
    app = create_app(lambda: line.rt)
    headers = {"Authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        found = (await client.get("/admin/problems")).json()
        assert [one["incident"] for one in found["problems"]] == [1, 2]
        assert (await client.post("/admin/problems/9/ack", json={})).status_code == 404
        done = await client.post("/admin/problems/1/ack", json={})
        assert [one["subject"] for one in done.json()["acknowledged"]] == ["One"]
        done = await client.post("/admin/problems/ack", json={})
        assert [one["subject"] for one in done.json()["acknowledged"]] == ["Two"]
        assert (await client.get("/admin/problems")).json() == {"status": "ok", "problems": []}
    assert [(one.via, one.action, one.status) for one in audit_rows.page(10)] == [
        ("api", "POST /admin/problems/ack", 200),
        ("api", "POST /admin/problems/1/ack", 200),
        ("api", "POST /admin/problems/9/ack", 404),
    ]
