"""`csi notify`: what is wrong, what was told, and whether telling works."""

import json

import pytest
from click.testing import CliRunner

from csi.cli.notify import notify as command
from csi.errors import ConfigError, MissingSetting
from csi.store import db
from tests.fakes.fired_alert import fire_alert
from tests.fakes.raw_server import static_page
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def run(tmp_path, clock, monkeypatch):
    InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={})
    fire_alert("quota_low", "api", "few units", clock())
    db.database.close()
    for name, value in {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/", "CSI_UA_SHARED_SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)

    def invoke(*arguments, **env):
        return CliRunner().invoke(command, [*arguments, "--config", str(tmp_path / "config.yaml")], env=env)

    return invoke


def test_status_says_what_is_wrong_now_and_what_was_noted(run):
    told = json.loads(run("status", "--json").output)
    assert [trouble["name"] for trouble in told["current"]] == ["worker_silent"]
    assert [trouble["trouble"] for trouble in told["noted"]] == ["quota_low"]
    assert (told["services"], told["heartbeat"]) == (0, False)
    text = run("status").output
    assert "worker_silent: no worker has ever run" in text
    assert "quota_low" in text


def test_check_notes_a_dead_worker_from_outside(run):
    assert "worker_silent" in run("check").output
    assert [trouble["trouble"] for trouble in json.loads(run("status", "--json").output)["noted"]] == ["worker_silent"]


def test_test_sends_and_pings(run):
    pytest.importorskip("apprise", reason="needs the extra csi[notify]")
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as desk, static_page() as there:
        port = desk.url.split(":")[2].split("/")[0]
        done = run("test", CSI_NOTIFY_URLS=f"json://127.0.0.1:{port}/", CSI_HEARTBEAT_URL=f"{there.url}/canary")
        assert (done.exit_code, done.output) == (0, "the message was sent\nthe heartbeat URL answered\n")
        assert there.targets == ["/canary"]


def test_what_does_not_work_is_said_without_the_url(run):
    pytest.importorskip("apprise", reason="needs the extra csi[notify]")
    urls = {"CSI_NOTIFY_URLS": "json://127.0.0.1:1/canary-one", "CSI_HEARTBEAT_URL": "http://127.0.0.1:1/canary-two"}
    done = run("test", **urls)
    assert done.exit_code == 1
    assert "canary" not in done.output
    assert "rejected the message" in done.output
    assert "did not answer" in done.output


@pytest.mark.parametrize(
    ("env", "kind", "words"),
    [({}, MissingSetting, "neither"), ({"CSI_NOTIFY_URLS": "nosuch://canary"}, ConfigError, "number 1")],
    ids=["nothing is set", "not a URL"],
)
def test_what_is_not_configured_is_said(run, env, kind, words):
    done = run("test", **env)
    assert isinstance(done.exception, kind)
    assert words in str(done.exception)
    assert "canary" not in str(done.exception)
