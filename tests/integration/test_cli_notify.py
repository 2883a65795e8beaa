"""`csi notify`: what is wrong, what was told, and whether telling works."""

import json
import re

import pytest
from click.testing import CliRunner

from csi.cli.notify import notify as command
from csi.errors import ConfigError, MissingSetting
from csi.store import db
from csi.store.queries import audit_rows
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
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as notification_target, static_page() as there:
        port = notification_target.url.split(":")[2].split("/")[0]
        done = run("test", CSI_NOTIFY_URLS=f"json://127.0.0.1:{port}/", CSI_HEARTBEAT_URL=f"{there.url}/canary")
        assert (done.exit_code, done.output) == (0, "the message was sent\nthe heartbeat URL answered\n")
        assert there.targets == ["/canary"]


def test_what_does_not_work_is_said_without_the_url(run):
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    urls = {"CSI_NOTIFY_URLS": "json://127.0.0.1:1/canary-one", "CSI_HEARTBEAT_URL": "http://127.0.0.1:1/canary-two"}
    done = run("test", **urls)
    assert done.exit_code == 1
    assert "canary" not in done.output
    assert "refused the message" in done.output
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


def test_mute_mutes_and_unmute(run):
    done = run("mute", "2h", "--problem", "quota_low", "--reason", "known")
    assert done.exit_code == 0
    assert re.fullmatch(r"muted: quota_low until \S+Z \(known\); `csi notify unmute 1` ends it\n", done.output)
    assert run("mute", "30m").exit_code == 0
    (one, two) = json.loads(run("mutes", "--json").output)["mutes"]
    assert (one["problem"], two["problem"], one["created_by"][:3]) == ("quota_low", None, "cli")
    assert "known" in run("mutes").output
    assert "all notifications until" in run("status").output
    assert "muted" in run("status").output
    assert (run("unmute", "1").output, run("unmute", "1").exit_code) == ("1 mute ended\n", 1)
    assert run("unmute").output == "1 mute ended\n"
    assert run("mutes").output == "nothing is muted\n"
    assert run("unmute").exit_code == 0
    with db.connection():
        recorded = [(one.via, one.action, one.status) for one in reversed(audit_rows.page(10))]
    assert recorded[:3] == [
        ("cli", "csi notify mute 7200s --problem quota_low", 0),
        ("cli", "csi notify mute 1800s", 0),
        ("cli", "csi notify unmute 1", 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mute", "2"], "not a duration"),
        (["mute", "2h", "--problem", "no_such"], "known are worker_silent"),
        (["mute", "1s"], "from 1 minute to 30 days"),
        (["mute", "40d"], "from 1 minute to 30 days"),
    ],
)
def test_a_mute_that_cannot_be_is_refused_and_nothing_is_muted(run, arguments, words):
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.output
    assert run("mutes").output == "nothing is muted\n"


def test_status_lists_the_last_notifications_with_their_results(run):
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    urls = {"CSI_NOTIFY_URLS": "json://127.0.0.1:1/canary-one"}
    assert run("test", **urls).exit_code == 1
    told = json.loads(run("status", "--json", **urls).output)
    assert told["targets"] == ["json"]
    (one,) = told["notifications"]
    assert (one["target"], one["kind"], one["result"], one["attempts"]) == ("json", "test", "failed", 1)
    assert "canary" not in run("status", **urls).output
    assert "failed" in run("status", **urls).output
