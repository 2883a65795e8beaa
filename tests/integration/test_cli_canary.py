"""No secret in any output of any command: every leaf of the command tree is called with canaries in every place."""

import base64
import json
import os
import shlex
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from csi import clock
from csi.catalog.catalog_retention import archive_old_rows
from csi.cli.main import cli
from csi.jobs.job_kinds import new_job
from csi.logs import redaction
from csi.processing.store import audit, dead_jobs
from csi.processing.store import db as processing_db
from csi.store import db, destinations, hosts, inbound_messages
from csi.store.catalog import jobs
from csi.store.inbound_messages import NewMessage
from csi.store.models import Watch
from ops.docs_cli import leaves
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.operator import (
    ARCHIVE,
    CHANNEL,
    DEAD_JOB,
    DEAD_LETTER,
    LONG_AGO,
    LOOPBACK,
    OPEN_JOB,
    VIDEO,
    filled_operator_rig,
)

INGESTER = {
    "CSI_UA_SHARED_SECRET": "canary-shared-Zq8/5+secret=",
    "CSI_UA_BEARER_TOKEN": "canary-bearer-1f9d",
    "YOUTUBE_API_KEY": "canary-api-key-77",
    "YOUTUBE_OAUTH_CLIENT_ID": "canary-client-id-3",
    "YOUTUBE_OAUTH_CLIENT_SECRET": "canary-client-secret",
    "YOUTUBE_OAUTH_REFRESH_TOKEN": "canary-refresh-token",
    "CSI_ADMIN_TOKEN": "canary-admin-token-x",
    "CSI_ADMIN_READ_TOKEN": "canary-read-token-xy",
    "CSI_FEED_TOKEN": "canary-feed-token-xyz",
    "CSI_INBOUND_KEY": "canary-inbound-key-0123456789-abcdef",
    "CSI_QUEUE_SECRET": "canary-queue-secret",
    "CSI_ARCHIVE_SECRET": "canary-archive-secret",
    "CSI_NOTIFY_URLS": "json://127.0.0.1:9/canary-notify-token",
    "CSI_HEARTBEAT_URL": "http://127.0.0.1:9/canary-heartbeat-token",
}
RECEIVER = {
    "UA_SIGNALS_INGEST_SHARED_SECRET": "canary-receiver-secret-0123456789",
    "UA_SIGNALS_INGEST_PREVIOUS_SECRET": "canary-previous-secret",
    "UA_SIGNALS_INGEST_BEARER_TOKEN": "canary-receiver-bearer",
    "UA_SIGNALS_DASHBOARD_PASSWORD": "canary-dashboard-password",
}
PROCESSING = {
    "ASSEMBLYAI_API_KEY": "canary-assemblyai-key",
    "CSI_ASSEMBLYAI_WEBHOOK_SECRET": "canary-webhook-secret",
    "OPENAI_API_KEY": "canary-openai-key",
    "CSI_NOTIFY_URLS": INGESTER["CSI_NOTIFY_URLS"],
}
CANARIES = INGESTER | RECEIVER | PROCESSING
KEPT = "canary-kept-secret-0123456789-abcdef"
"""The secret of a destination that was added by command: in a private file."""
FORMS = {
    form
    for value in [*CANARIES.values(), "canary-notify-token", "canary-heartbeat-token", KEPT]
    for form in (value, quote(value, safe=""), base64.b64encode(value.encode()).decode(), value.encode().hex())
}

# How each command is called; `` is: as it is. Commands that do not end are tested elsewhere, by their processes.
LINES = {
    "adapters list": "",
    "adapters show": "feed",
    "adapters test": "feed",
    "archive list": "",
    "archive restore": ARCHIVE,
    "archive run": "--yes",
    "archive show": "jobs-2024-01.jsonl.gz",
    "audit list": "",
    "channels add": "UC0000000000000000000009",
    "channels backfill": CHANNEL,
    "channels compare": CHANNEL,
    "channels export": "--of videos",
    "channels import": "-",
    "channels list": "",
    "channels pause": CHANNEL,
    "channels priority": f"{CHANNEL} 9",
    "channels resume": CHANNEL,
    "channels show": CHANNEL,
    "channels trend": CHANNEL,
    "compare": "{home}/old-ids.txt",
    "completion": "bash",
    "config accept": "",
    "config check": "",
    "config schema": "",
    "config show": "--origin",
    "db copy": "--to postgresql://csi:{secret}@127.0.0.1:9/none",
    "db backup": "{home}/backup.db",
    "db backup-failed": "{secret}",
    "db migrate": "",
    "db repair": "--yes",
    "db status": "",
    "delivery pause": "--reason {secret}",
    "delivery resume": "",
    "delivery status": "",
    "delivery test": "",
    "destinations add": "other http://127.0.0.1:9/other --secret-stdin",
    "destinations list": "",
    "destinations pause": "hook --reason {secret}",
    "destinations remove": "hook --yes",
    "destinations resume": "hook",
    "destinations rotate": "hook",
    "destinations set": "hook timeout_seconds=5",
    "destinations show": "hook",
    "destinations test": "hook",
    "dlq discard": "--id 1 --reason {secret} --yes",
    "dlq list": "--state all",
    "dlq prune": "--older-than 1d --dry-run",
    "dlq replay": "--id 1",
    "dlq show": "1",
    "docs": "runbook first-look",
    "doctor": "",
    "events list": "",
    "events resend": "1 --yes",
    "events show": "1",
    "events tail": "--for 0s",
    "health": "",
    "inbound add": "other",
    "inbound list": "",
    "inbound messages": "--state failed",
    "inbound remove": "shop",
    "inbound replay": "--failed",
    "inbound rotate": "shop",
    "inbound test": "shop",
    "init": "--yes --config {home}/new/config.yaml --endpoint http://127.0.0.1:9/ingest",
    "jobs cancel": f"{OPEN_JOB} --yes",
    "jobs dead": "",
    "jobs enqueue": "REQUEUE_STUCK",
    "jobs list": "",
    "jobs retry": DEAD_JOB,
    "jobs show": DEAD_JOB,
    "notify check": "",
    "notify mute": "1h",
    "notify mutes": "",
    "notify status": "",
    "notify test": "",
    "notify unmute": "",
    "problems": "",
    "problems ack": "all",
    "problems list": "",
    "processing add": "unreadable1 --dry-run",
    "processing check": "",
    "processing digest": "",
    "processing dlq abandon": f"{DEAD_LETTER} --note {{key}} --yes",
    "processing dlq assign": f"{DEAD_LETTER} {{key}}",
    "processing dlq list": "",
    "processing dlq note": f"{DEAD_LETTER} {{key}}",
    "processing dlq reopen": DEAD_LETTER,
    "processing dlq resolve": f"{DEAD_LETTER} --note {{key}}",
    "processing dlq retry": DEAD_LETTER,
    "processing dlq show": DEAD_LETTER,
    "processing export": "--collection jobs_deadletter",
    "processing list": "",
    "processing notifications list": "",
    "processing notifications resend": "1",
    "processing retry": "unreadable1",
    "processing mute": "1h --reason {key}",
    "processing release": "",
    "processing resume": "file",
    "processing show": "unreadable1",
    "processing status": "",
    "processing summarise": "unreadable1 --model {key}",
    "processing unmute": "",
    "prune": "--dry-run",
    "quota": "",
    "receiver doctor": "--url {signals}",
    "receiver login-link": "--db {home}/signals/receiver.db",
    "runs list": "",
    "runs note": "2026-02-22 {key}",
    "runs show": "",
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
    "login-link": "",
    "logs": "-",
    "reload": "",
    "tasks dlq": "",
    "db restore": "--yes {home}/no-such-file",
    "audit": "",
    "channels remove": f"{CHANNEL} --dry-run --yes",
    "examples": "",
    "exec": "no-such-program",  # any that exists would replace this process
    "processing audit": "",
    "simulate composio": "http://127.0.0.1:1/ --playlist PL1 --secret-env CSI_UA_SHARED_SECRET",
    "sources set": "1 --tag x --dry-run",
    "sources show": "1",
    "version": "",
    "status": "",
    "tasks list": "",
    "tasks purge": "--dry-run",
    "tasks show": "poll",
    "tasks stats": "",
    "top": "--once",
    "trace": "delivered01",
    "videos hot": "",
    "videos list": CHANNEL,
    "videos movers": "",
    "videos show": VIDEO,
}
ENDLESS = {
    "demo", "mcp", "processing run", "receiver", "run",
    "simulate feeds", "simulate hub", "simulate reddit", "simulate youtube",
}  # fmt: skip


def names() -> list[str]:
    return [name.removeprefix("csi ") for name, _ in leaves()]


def test_every_command_is_called_here():
    assert set(names()) == set(LINES) | ENDLESS, "say in LINES how a new command is called"


def echo(secrets: dict[str, str]) -> ScriptedReceiver:
    """A receiver that refuses everything, and sends secrets back."""
    return ScriptedReceiver(then=(401, {"ok": False, "error": " ".join(secrets.values())}, {}))


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Everything in the databases that came from outside holds canaries, and the receiver sends ours back."""
    monkeypatch.setattr(redaction.redactor, "forms", ())
    with echo(INGESTER) as ua:
        archive = {"archive": {"endpoint": ua.url, "secret_env": "CSI_ARCHIVE_SECRET"}}
        with filled_operator_rig(tmp_path, ua.url, delivery={"destinations": archive}) as built:
            told = f"the key {CANARIES['YOUTUBE_API_KEY']} with {CANARIES['CSI_UA_SHARED_SECRET']}"
            Watch.update(last_error=told, note=told, errors=1).execute()
            db.run("UPDATE dead_letter SET error_reason = ?", told)
            db.run("UPDATE delivery_attempts SET reason = ?, answer = ?", told, told)
            destinations.change("default", circuit="open", reason=told, last_error=told)
            hosts.pause(hosts.get("other.example"), built.now, built.now + 90, told)
            fill_catalogue(told)
            archive_job(built, told)
            fill_processing(f"the key {CANARIES['OPENAI_API_KEY']} with {CANARIES['CSI_NOTIFY_URLS']}")
            built.env |= CANARIES
            yield built


def fill_catalogue(told: str) -> None:
    db.run("UPDATE jobs SET error_message = ?", told)
    db.run("UPDATE job_events SET details = ?", json.dumps({"error": told}))
    db.run("UPDATE alerts SET text = ?", told)


def archive_job(built, told: str) -> None:
    job = jobs.enqueue(new_job("REQUEUE_STUCK"), LONG_AGO).job
    jobs.mark_dead(job, told, LONG_AGO)
    archive_old_rows(built.rt, rest=lambda seconds: None)


def fill_processing(told: str) -> None:
    with processing_db.reading():
        processing_db.run("UPDATE videos SET doc = json_set(doc, '$.last_error', ?)", told)
        processing_db.run("UPDATE jobs SET doc = json_set(doc, '$.error_message', ?)", told)
        inside = "json_set(doc, '$.final_error', ?, '$.resolution_notes', ?, '$.job_payload.error_message', ?)"
        processing_db.run(f"UPDATE dead_jobs SET doc = {inside}", told, told, told)
        audit.write(audit.AuditScope("transcriber"), "provider_call", "failure", clock.now(), error_message=told)


def add_hook_and_sender(house) -> None:
    """By commands: a destination whose secret is in the private file, and a sender with a message that failed."""
    assert "hook" in called(house, "destinations add hook http://127.0.0.1:9/hook --secret-stdin", f"{KEPT}\n")
    assert "shop" in called(house, "inbound add shop")
    told = f"the key {CANARIES['YOUTUBE_API_KEY']} with {CANARIES['CSI_INBOUND_KEY']}"
    with db.connection():
        inbound_messages.add(NewMessage("shop", "events", 1, "msg_1", b"{}"), house.now)
        db.run("UPDATE inbound_messages SET state = 'failed', result = ?", told)


def called(house, line: str, text: str = "UC0000000000000000000008\n") -> str:
    """What a new process would say: it knows no secret until it is told of it."""
    redaction.redactor.forms = ()
    db.database.close()
    result = CliRunner().invoke(cli, shlex.split(line), env=house.env, input=text)
    return f"{result.output}\n{result.exception or ''}"


@pytest.mark.parametrize("name", LINES)
def test_no_secret_in_the_output_of(house, tmp_path, name, capfd):
    add_hook_and_sender(house)
    typed = {"secret": shlex.quote(CANARIES["CSI_UA_SHARED_SECRET"]), "key": CANARIES["OPENAI_API_KEY"]}
    with echo(RECEIVER) as signals:
        call_all(house, name, LINES[name].format(home=tmp_path, signals=signals.url, **typed))
    written = "".join(capfd.readouterr())
    assert [form for form in FORMS if form in written] == []


def call_all(house, name: str, rest: str) -> None:
    """As it is, with --json where it has that, and wrong."""
    has_json = any(f"csi {name}" == full and _prints_json(command) for full, command in leaves())
    for line in [f"{name} {rest}", *([f"{name} {rest} --json"] if has_json else []), f"{name} --nonsense"]:
        text = called(house, line)
        assert text.strip(), f"csi {line} said nothing"
        assert [form for form in FORMS if form in text] == [], f"csi {line}\n{text}"


def _prints_json(command) -> bool:
    return any("--json" in param.opts for param in command.params)


def test_the_canaries_are_really_there(house):
    """Without care they would show: they are in the environment, in the rows, and in the receiver's answer."""
    assert house.env["YOUTUBE_API_KEY"] in Watch.get().last_error
    assert house.env["YOUTUBE_API_KEY"] in jobs.find(DEAD_JOB).error_message
    with processing_db.reading():
        assert house.env["OPENAI_API_KEY"] in dead_jobs.find(DEAD_LETTER).doc.final_error
        assert house.env["OPENAI_API_KEY"] in audit.search(limit=1)[0].error_message
    assert LOOPBACK["api_base_url"].startswith("http://127.0.0.1")
    assert not set(CANARIES.values()) & set(os.environ.values())
