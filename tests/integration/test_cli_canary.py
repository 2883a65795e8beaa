"""No secret in any output of any command: every leaf of the command tree is called with canaries in every place."""

import base64
import os
import shlex
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.store import db, endpoints, hosts
from csi.store.models import DeadLetter, DeliveryAttempt, Watch
from ops.docs_cli import leaves
from tests.fakes.receiver import ScriptedReceiver
from tests.fakes.scene import LOOPBACK, scene

CANARIES = {
    "CSI_UA_SHARED_SECRET": "canary-shared-Zq8/5+secret=",
    "CSI_UA_BEARER_TOKEN": "canary-bearer-1f9d",
    "YOUTUBE_API_KEY": "canary-api-key-77",
    "YOUTUBE_OAUTH_CLIENT_ID": "canary-client-id-3",
    "YOUTUBE_OAUTH_CLIENT_SECRET": "canary-client-secret",
    "YOUTUBE_OAUTH_REFRESH_TOKEN": "canary-refresh-token",
    "CSI_ADMIN_TOKEN": "canary-admin-token-x",
    "CSI_ADMIN_READ_TOKEN": "canary-read-token-xy",
    "CSI_QUEUE_SECRET": "canary-queue-secret",
    "CSI_ARCHIVE_SECRET": "canary-archive-secret",
}
FORMS = {
    form
    for value in CANARIES.values()
    for form in (value, quote(value, safe=""), base64.b64encode(value.encode()).decode(), value.encode().hex())
}

# How each command is called; `` is: as it is. Commands that do not end are tested elsewhere, by their processes.
LINES = {
    "completion": "bash",
    "config check": "",
    "config schema": "",
    "config show": "--origin",
    "db backup": "{home}/backup.db",
    "db migrate": "",
    "db status": "",
    "delivery pause": "--reason {secret}",
    "delivery resume": "",
    "delivery status": "",
    "delivery test": "",
    "dlq discard": "--id 1 --reason {secret} --yes",
    "dlq list": "--state all",
    "dlq prune": "--older-than 1d --dry-run",
    "dlq replay": "--id 1",
    "dlq show": "1",
    "doctor": "",
    "events list": "",
    "events show": "1",
    "events tail": "--for 0s",
    "health": "",
    "init": "--yes --config {home}/new/config.yaml --endpoint http://127.0.0.1:9/ingest",
    "prune": "--dry-run",
    "quota": "",
    "schema": "event",
    "slo": "",
    "sources add": "UC0000000000000000000009",
    "sources export": "",
    "sources import": "-",
    "sources list": "",
    "sources pause": "1",
    "sources poll": "1",
    "sources remove": "1 --yes",
    "sources reset": "1 --emit none --yes",
    "sources resume": "1",
    "status": "",
    "tasks list": "",
    "tasks purge": "--dry-run",
    "tasks show": "poll",
    "tasks stats": "",
    "top": "--once",
    "trace": "delivered01",
}
ENDLESS = {"demo", "receiver", "run", "simulate youtube"}


def names() -> list[str]:
    return [name.removeprefix("csi ") for name, _ in leaves()]


def test_every_command_is_called_here():
    assert set(names()) == set(LINES) | ENDLESS, "say in LINES how a new command is called"


@pytest.fixture
def house(tmp_path):
    """Everything in the database that came from outside holds canaries, and the receiver sends ours back."""
    echo = (401, {"ok": False, "error": " ".join(CANARIES.values())}, {})
    with ScriptedReceiver(then=echo) as ua:
        archive = {"archive": {"endpoint": ua.url, "secret_env": "CSI_ARCHIVE_SECRET"}}
        with scene(tmp_path, ua.url, delivery={"destinations": archive}) as built:
            told = f"the key {CANARIES['YOUTUBE_API_KEY']} with {CANARIES['CSI_UA_SHARED_SECRET']}"
            Watch.update(last_error=told, note=told, errors=1).execute()
            DeadLetter.update(error_reason=told).execute()
            DeliveryAttempt.update(reason=told, answer=told).execute()
            endpoints.change("default", breaker="open", reason=told, last_error=told)
            hosts.pause(hosts.get("other.example"), built.now, built.now + 90, told)
            built.env |= CANARIES
            yield built


def called(house, line: str) -> str:
    db.database.close()
    result = CliRunner().invoke(cli, shlex.split(line), env=house.env, input="UC0000000000000000000008\n")
    return f"{result.output}\n{result.exception or ''}"


@pytest.mark.parametrize("name", LINES)
def test_no_secret_in_the_output_of(house, tmp_path, name, capfd):
    rest = LINES[name].format(home=tmp_path, secret=shlex.quote(CANARIES["CSI_UA_SHARED_SECRET"]))
    has_json = any(f"csi {name}" == full and _prints_json(command) for full, command in leaves())
    for line in [f"{name} {rest}", *([f"{name} {rest} --json"] if has_json else []), f"{name} --nonsense"]:
        text = called(house, line)
        assert text.strip(), f"csi {line} said nothing"
        assert [form for form in FORMS if form in text] == [], f"csi {line}\n{text}"
    written = "".join(capfd.readouterr())
    assert [form for form in FORMS if form in written] == []


def _prints_json(command) -> bool:
    return any("--json" in param.opts for param in command.params)


def test_the_canaries_are_really_there(house):
    """Without care they would show: they are in the environment, in the rows, and in the receiver's answer."""
    assert house.env["YOUTUBE_API_KEY"] in Watch.get().last_error
    assert LOOPBACK["api_base_url"].startswith("http://127.0.0.1")
    assert not set(CANARIES.values()) & set(os.environ.values())
