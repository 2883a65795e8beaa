"""Processing reports its silent stops: a dead worker, a refused key, a spent budget, a failing provider, dead jobs."""

import fcntl
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from csi.cli.main import cli
from csi.errors import CsiError
from csi.problems import to_notify
from csi.processing import alerting
from csi.processing.alerting import AlertLoop
from csi.processing.pages.app import routes
from csi.processing.pages.health import LIVE_PATH, METRICS_PATH, READY_PATH, render
from csi.processing.pipeline import maintenance, provider_access
from csi.processing.problems import ALERTS, KINDS, ProcessingProblem
from csi.processing.runtime import StepWake
from csi.processing.status import problems
from csi.processing.store import alerts, db, dead_jobs, jobs, mutes, paid_calls, providers
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from tests.fakes.pages import ROOT, anchors, codes, rows, section
from tests.fakes.providers import GOOD, FakeAssembly, FakeChat, reply
from tests.rigs.processing_bench import ProcessingBench

CALLS = "/chat/completions"
CANARY = "provider-words-canary"
REFUSED = (401, {"error": {"message": f"Incorrect API key: {CANARY}", "code": "invalid_api_key"}}, {})


@pytest.fixture
def chat():
    with FakeChat() as server:
        yield server


@pytest.fixture
def assembly():
    with FakeAssembly() as server:
        yield server


def chat_bench(open_bench: Callable[..., ProcessingBench], chat: FakeChat, videos: int, **settings: Any):
    prices = {"usd_per_million_input": 1, "usd_per_million_output": 2}
    openai = {"base_url": f"{chat.url}/v1", "timeout": 5, **prices, **settings.pop("openai", {})}
    bench = open_bench(summarization={"provider": "openai", "openai": openai}, **settings)
    bench.sent = []

    def keep(title: str, body: str) -> None:
        if title.startswith("CSI processing: "):  # the others are notices about videos
            bench.sent.append((bench.clock(), title.removeprefix("CSI processing: "), body))

    bench.rt.notifiers = [keep]
    for number in range(videos):
        bench.deliver(f"vid{number:08d}")
    return bench


def refuse_key(chat: FakeChat) -> None:
    chat.always = {CALLS: REFUSED, "/models": REFUSED}


def watch(bench: ProcessingBench, seconds: float, *, stride: float = 5.0, is_worker: bool = True) -> None:
    """Time passes; the worker works and checks, or only the receiver checks."""
    end = bench.clock() + seconds
    while bench.clock() < end:
        if is_worker:
            bench.drain()
            maintenance.maintain(bench.rt)
        alerting.check(bench.rt, is_worker=is_worker)
        bench.clock.move(stride)


def found(bench: ProcessingBench) -> dict[str, ProcessingProblem]:
    return {problem.id: problem for problem in problems(bench.rt) if problem.id != "processing_silent"}


def client(bench: ProcessingBench, host: str = "127.0.0.1", password: str | None = None) -> httpx.AsyncClient:
    settings = ReceiverSettings(secret="csi-test-secret", db_path=bench.home / "other.db")
    app = create_app(settings, extra_routes=routes(bench.rt, password))
    transport = httpx.ASGITransport(app=app, client=(host, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8090")


def csi(bench: ProcessingBench, *words: str) -> str:
    env = {"CSI_PROCESSING_STATE_DIR": str(bench.settings.state_dir), "UA_SIGNALS_DB_PATH": str(bench.home / "r.db")}
    path = bench.home / "processing.yaml"
    path.write_text(
        f'summarization: {{provider: "{bench.settings.summarization.provider}"}}\n'
        'transcription: {providers: ["file"]}\n'
    )
    result = CliRunner().invoke(cli, [*words, "--config", str(path)], env=env)
    if isinstance(result.exception, CsiError):
        return f"csi: {result.exception}"
    return result.output


# ── a refused key ───────────────────────────────────────────────────────────────────────────────────────


def test_the_first_401_pauses_the_provider_and_burns_no_job(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 51)
    watch(bench, 30)
    assert chat.count(CALLS) == 1
    assert (dead_jobs.open_count(), jobs.waiting("openai")) == (0, 51)
    job = bench.job("su_vid00000050")
    assert (job.attempts, job.api_tries) == (0, 0)
    assert "openai is paused: authentication failed (HTTP 401)" in job.doc.error_message
    assert paid_calls.used(bench.rt.today()) == 0
    problem = found(bench)["provider_refused"]
    assert problem.cause == "authentication failed (HTTP 401)"
    assert "51 jobs wait" in problem.effect
    assert "OPENAI_API_KEY" in problem.remedy


@pytest.mark.parametrize("status", [401, 403])
def test_it_is_named_authentication_and_not_quota(open_bench, chat, status):
    chat.always = {CALLS: status, "/models": status}
    bench = chat_bench(open_bench, chat, 1)
    bench.drain()
    assert providers.find("openai").pause_cause == "authentication"


def test_one_message_within_30_seconds_and_one_when_it_is_over(open_bench, chat, clock):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 3)
    start = clock()
    watch(bench, 600)
    ((at, title, body),) = bench.sent
    assert at - start <= 30
    assert title == "provider refused (openai)"
    assert "authentication failed (HTTP 401)" in body
    assert CANARY not in body
    chat.always = {}
    watch(bench, 360)
    assert [title for _, title, _ in bench.sent[1:]] == ["provider refused (openai): resolved"]
    assert set(bench.statuses().values()) == {"summarized"}


def test_a_paused_provider_is_probed_by_a_free_request_every_5_minutes(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 4)
    watch(bench, 3600, stride=30)
    assert chat.count(CALLS) == 1
    assert 11 <= chat.count("/models") <= 12
    chat.always = {}
    watch(bench, 330)
    assert (chat.billed, set(bench.statuses().values())) == (4, {"summarized"})
    assert found(bench) == {}


def test_where_no_free_request_tells_one_job_probes(open_bench, chat):
    chat.always = {CALLS: REFUSED, "/models": 404}
    bench = chat_bench(open_bench, chat, 6)
    watch(bench, 3600, stride=30)
    assert 11 <= chat.count(CALLS) <= 13
    assert (dead_jobs.open_count(), jobs.waiting("openai")) == (0, 6)
    chat.always = {"/models": 404}
    watch(bench, 330)
    assert set(bench.statuses().values()) == {"summarized"}


def test_a_restart_with_a_valid_key_resumes_at_once(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 3)
    bench.drain()
    chat.always = {}
    bench.start()
    maintenance.recover_claims(bench.rt)
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}


def test_the_pause_is_a_row_that_a_killed_worker_leaves(open_bench, chat, clock):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 3)
    bench.drain()
    bench.start()
    clock.move(100)
    bench.drain()
    assert chat.count(CALLS) == 1
    assert found(bench)["provider_refused"].since == clock() - 100


def test_the_command_of_the_remedy_resumes_it(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 3)
    bench.drain()
    (command,) = found(bench)["provider_refused"].commands
    chat.always = {}
    bench.clock.time = time.time()
    assert csi(bench, *command.split()[1:]) == "openai: resumed, 3 jobs are due\n"
    bench.clock.move(1)
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}
    assert csi(bench, "processing", "resume", "openai") == "openai: is not paused\n"
    assert "not a configured provider" in csi(bench, "processing", "resume", "nowhere")


def test_a_resumed_provider_that_refuses_again_is_one_incident(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 3)
    watch(bench, 60)
    for _ in range(3):
        provider_access.resume(bench.rt, "openai")
        watch(bench, 60)
    assert len(bench.sent) == 1
    assert chat.count(CALLS) == 4


def test_a_key_of_the_transcriber_is_refused_before_audio_is_sent_again(open_bench, assembly, tmp_path):
    (tmp_path / "audio").mkdir()
    assembly.always = {"/v2/upload": 401, "/v2/transcript": 401}
    block = {"base_url": assembly.url, "audio_dir": tmp_path / "audio"}
    bench = open_bench(transcription={"providers": ["assemblyai"], "assemblyai": block})
    for number in range(5):
        (tmp_path / "audio" / f"vid{number:08d}.mp3").write_bytes(b"audio")
        bench.deliver(f"vid{number:08d}", text=None)
    bench.run_for(3600, stride=60)
    assert (assembly.count("/v2/upload"), jobs.waiting("assemblyai"), dead_jobs.open_count()) == (1, 5, 0)
    assembly.always = {}
    bench.run_for(400, stride=15)
    assert set(bench.statuses().values()) == {"summarized"}
    assert assembly.billed == 5


def test_a_provider_that_is_no_longer_configured_holds_no_job(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 2)
    bench.drain()
    plain = bench.settings.summarization.model_copy(update={"provider": "extractive"})
    bench.settings = bench.settings.model_copy(update={"summarization": plain})
    bench.start()
    maintenance.recover_claims(bench.rt)
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}
    assert found(bench) == {}


# ── a provider that fails ───────────────────────────────────────────────────────────────────────────────


def test_a_provider_that_fails_is_reported_within_four_minutes_with_its_cause(open_bench, chat, clock):
    chat.always = {CALLS: (503, {"error": CANARY}, {})}
    bench = chat_bench(open_bench, chat, 1)
    start = clock()
    watch(bench, 240)
    ((at, title, body),) = bench.sent
    assert at - start <= 240
    assert title == "provider failing (openai)"
    assert "the call failed (HTTP 503)" in body
    assert CANARY not in body
    chat.always = {}
    watch(bench, 400)
    assert len(bench.sent) == 2
    assert found(bench) == {}


def test_a_short_failure_is_no_message(open_bench, chat):
    chat.faults = {CALLS: [503, 503]}
    bench = chat_bench(open_bench, chat, 1)
    watch(bench, 600)
    assert (bench.sent, found(bench)) == ([], {})


def test_a_model_that_never_answers_is_reported(open_bench, chat):
    """One job: its call is not repeated, because it may have been paid."""
    slow = threading.Event()
    chat.script = [lambda: (slow.wait(10), reply(GOOD))[1]]
    bench = chat_bench(open_bench, chat, 1, openai={"timeout": 1})
    watch(bench, 240)
    slow.set()
    ((_, title, body),) = bench.sent
    assert title == "provider failing (openai)"
    assert "no complete response within 1 s" in body
    assert str(chat.url).removeprefix("http://") not in body


def test_a_notification_links_to_the_pages_where_their_address_is_set(open_bench, chat):
    chat.always = {CALLS: 401}
    bench = chat_bench(open_bench, chat, 1, notifications={"public_url": "https://ua.example.org/"})
    watch(bench, 60)
    ((_, _, body),) = bench.sent
    assert "Dashboard: https://ua.example.org/ui\n" in body
    assert "Runbook: csi docs runbook a-provider-refuses-our-key" in body


def test_a_muted_problem_is_notified_when_the_mute_ends(open_bench, chat, clock):
    chat.always = {CALLS: 401}
    bench = chat_bench(open_bench, chat, 1)
    with db.writing():
        mutes.add("provider_refused", None, by="test", now=clock(), until=clock() + 300)
    watch(bench, 240)
    assert bench.sent == []
    watch(bench, 120)
    ((_, title, _),) = bench.sent
    assert title == "provider refused (openai)"


# ── the budget ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_spent_budget_is_reported_with_the_time_it_resumes(open_bench, chat, clock):
    bench = chat_bench(open_bench, chat, 6, budget={"daily_usd": "0.0050"}, openai={"max_output_tokens": 600})
    start = clock()
    watch(bench, 60)
    problem = found(bench)["budget_spent"]
    assert "T00:00:00Z" in problem.effect
    assert problem.since == start
    (message,) = [body for at, title, body in bench.sent if "budget spent" in title and at - start <= 30]
    assert "paid calls resume at" in message
    clock.move(86_400)
    bench.settings = bench.settings.model_copy(
        update={"budget": bench.settings.budget.model_copy(update={"daily_usd": 5})}
    )
    bench.rt.settings = bench.settings
    watch(bench, 60)
    assert set(bench.statuses().values()) == {"summarized"}
    assert [title for _, title, _ in bench.sent if "budget" in title][-1] == "budget spent: resolved"


def test_a_raised_budget_holds_after_a_restart(open_bench, chat):
    bench = chat_bench(open_bench, chat, 6, budget={"daily_usd": "0.0050"}, openai={"max_output_tokens": 600})
    bench.drain()
    assert "budget_spent" in found(bench)
    more = bench.settings.budget.model_copy(update={"daily_usd": 5})
    bench.settings = bench.settings.model_copy(update={"budget": more})
    bench.start()
    maintenance.recover_claims(bench.rt)
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}
    assert found(bench) == {}


# ── dead jobs, the receiver's database, a pause ─────────────────────────────────────────────────────────


def broken_video(bench: ProcessingBench, number: int) -> None:
    (bench.home / "transcripts" / f"bad{number:08d}.json").write_text("{broken")
    bench.deliver(f"bad{number:08d}", text=None)


def test_dead_jobs_are_judged_by_share(open_bench, clock):
    bench = open_bench()
    for number in range(4):
        broken_video(bench, number)
    bench.drain()
    assert found(bench) == {}
    broken_video(bench, 4)
    bench.drain()
    problem = found(bench)["jobs_dead"]
    assert problem.what == "5 of the 5 jobs that ended in the last hour are dead letters"
    assert problem.cause == "5 fatal error"
    for number in range(3):
        bench.deliver(f"vid{number:08d}")
    bench.drain()
    assert found(bench) == {}
    clock.move(3700)
    assert found(bench) == {}


def test_a_receivers_database_that_cannot_be_read_is_reported(open_bench):
    bench = chat_bench(open_bench, FakeChat(), 0)
    bench.settings.receiver_db.write_bytes(b"no database" * 1000)
    watch(bench, 240)
    ((_, title, body),) = bench.sent
    assert title == "intake blocked (receiver)"
    assert "the receiver's database cannot be read" in body
    bench.settings.receiver_db.unlink()
    maintenance.maintain(bench.rt)
    assert found(bench)["intake_blocked"].cause == "the file does not exist"


def test_a_forgotten_pause_is_shown_while_anything_waits(open_bench):
    bench = open_bench(paused=True)
    assert found(bench) == {}
    bench.rt.settings = bench.settings.model_copy(update={"paused": False})
    bench.deliver("vid00000001")
    maintenance.run_step(bench.rt, StepWake("intake"))
    maintenance.run_step(bench.rt, StepWake("admit"))
    bench.rt.settings = bench.settings
    assert found(bench)["processing_paused"].effect == "1 jobs wait"


# ── a dead worker ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_a_silent_worker_is_said_everywhere_within_30_seconds(open_bench, clock):
    bench = open_bench()
    maintenance.maintain(bench.rt)
    async with client(bench, password="dashboard-word") as http:
        assert (await http.get(READY_PATH)).status_code == 200
        assert (await http.get(LIVE_PATH)).json()["status"] == "alive"
        assert "Problems" not in (await http.get("/ui", auth=("any", "dashboard-word"))).text
        clock.move(26)
        for path, words in ((READY_PATH, "not_ready"), (LIVE_PATH, "stalled")):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["status"]) == (503, words)
            assert answer.json()["reasons"] == ["the last heartbeat of processing's worker was 26 s ago"]
        page = (await http.get("/ui/run", auth=("any", "dashboard-word"))).text
        assert "last heartbeat of processing&#39;s worker was 26 s ago" in page
        assert "<code>csi processing run</code>" in page
        metrics = await http.get(METRICS_PATH, auth=("any", "dashboard-word"))
        assert "csi_processing_worker_alive 0.0" in metrics.text


def test_the_remedy_for_a_silent_worker_whose_process_runs_starts_no_second_one(open_bench, clock):
    bench = open_bench()
    maintenance.maintain(bench.rt)
    clock.move(90)
    lock = bench.rt.settings.state_dir / "worker.lock"
    with lock.open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        (problem,) = problems(bench.rt)
        assert problem.commands == ["systemctl restart csi-processing", "kill -9 4711"]
    assert problems(bench.rt)[0].commands == ["csi processing run"]


def test_the_receiver_notifies_of_a_dead_worker_after_60_seconds_and_of_its_return(open_bench, clock):
    bench = chat_bench(open_bench, FakeChat(), 0)
    watch(bench, 30)
    died_at = clock()
    watch(bench, 120, is_worker=False)
    ((at, title, body),) = bench.sent
    assert 55 <= at - died_at <= 70
    assert title == "processing silent (worker)"
    assert "csi processing run" in body
    watch(bench, 60)
    assert [title for _, title, _ in bench.sent[1:]] == ["processing silent (worker): resolved"]


def test_a_restart_of_the_worker_is_no_message(open_bench):
    bench = chat_bench(open_bench, FakeChat(), 0)
    for _ in range(5):
        watch(bench, 30)
        watch(bench, 40, is_worker=False)
    assert bench.sent == []


def test_the_worker_does_not_judge_its_own_heartbeat(open_bench, clock):
    bench = chat_bench(open_bench, FakeChat(), 0)
    maintenance.maintain(bench.rt)
    clock.move(300)
    alerting.check(bench.rt, is_worker=True)
    assert alerts.firing() == []


def test_a_dead_worker_explains_what_follows_from_it(open_bench, chat, clock):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 2)
    bench.drain()
    maintenance.maintain(bench.rt)
    clock.move(300)
    assert {problem.id for problem in problems(bench.rt)} == {"processing_silent", "provider_refused"}
    assert [problem.id for problem in to_notify(problems(bench.rt))] == ["processing_silent"]


def test_status_says_that_the_worker_is_silent(open_bench, chat, clock):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 2)
    bench.drain()
    maintenance.maintain(bench.rt)
    told = json.loads(csi(bench, "processing", "status", "--json"))  # by the real clock, years after the bench's
    assert (told["status"], told["worker_alive"]) == ("down", False)
    assert told["worker"].startswith("silent for")
    assert [problem["id"] for problem in told["problems"]] == ["processing_silent", "provider_refused"]
    assert (told["waiting_jobs"], told["paused_providers"]) == ({"openai": 2}, ["openai"])
    assert {"id", "severity", "what", "cause", "since", "effect", "remedy", "commands"} <= told["problems"][1].keys()
    shown = csi(bench, "processing", "status")
    assert "authentication failed (HTTP 401)" in shown
    assert "what to do   set OPENAI_API_KEY" in shown


def test_a_database_that_cannot_be_used_is_reported_from_memory(open_bench, clock):
    bench = chat_bench(open_bench, FakeChat(), 0)
    maintenance.maintain(bench.rt)
    loop = AlertLoop(bench.rt, is_worker=False)
    loop.check()

    def broken(_: Any) -> None:
        raise db.DatabaseError("database or disk is full")

    db.database.obj.query_hooks.append(broken)
    for _ in range(60):
        clock.move(5)
        loop.check()
    ((_, title, body),) = bench.sent
    assert title == "the database cannot be used"
    assert "database or disk is full" in body
    db.database.obj.query_hooks.remove(broken)
    maintenance.maintain(bench.rt)
    loop.check()
    assert [title for _, title, _ in bench.sent[1:]] == ["the database can be used again"]


# ── health pages and metrics ────────────────────────────────────────────────────────────────────────────


@pytest.mark.asyncio
async def test_a_refused_key_fails_readiness_and_not_liveness_and_shows_no_word_of_the_provider(open_bench, chat):
    refuse_key(chat)
    bench = chat_bench(open_bench, chat, 2)
    bench.drain()
    maintenance.maintain(bench.rt)
    async with client(bench, "10.0.0.9") as http:
        ready, live = await http.get(READY_PATH), await http.get(LIVE_PATH)
        assert (ready.status_code, live.status_code) == (503, 200)
        assert ready.json()["reasons"] == [
            "provider openai refuses our account and is paused: authentication failed (HTTP 401)"
        ]
        assert CANARY not in ready.text + live.text
        assert (await http.get(METRICS_PATH)).status_code == 404
        assert (await http.get("/readyz")).status_code == 200  # batches are stored meanwhile


@pytest.mark.asyncio
async def test_the_metrics_name_jobs_money_providers_and_problems(open_bench, chat):
    bench = chat_bench(open_bench, chat, 3)
    bench.drain()
    refuse_key(chat)
    for number in range(3, 6):
        bench.deliver(f"vid{number:08d}")
    broken_video(bench, 1)
    bench.drain()
    maintenance.maintain(bench.rt)
    async with client(bench) as http:
        page = (await http.get(METRICS_PATH)).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    values = {
        (sample.name.removeprefix("csi_processing_"), *sample.labels.values()): sample.value for sample in samples
    }
    assert values["worker_alive",] == 1
    assert values["heartbeat_age_seconds",] == 0
    assert values["jobs", "waiting"] == 3 == values["provider_waiting_jobs", "openai"]
    assert values["dead_jobs", "fatal_error"] == 1
    assert values["budget_limit_usd",] == 5
    assert values["budget_spent_usd",] > 0 == values["budget_reserved_usd",]
    assert values["provider_paused", "openai"] == 1
    assert (values["problems", "provider_refused"], values["alerts", "provider_refused"]) == (1, 1)
    assert values["problems", "processing_silent"] == 0
    named = [sample.labels for sample in samples if sample.name == "csi_processing_problem" and sample.value]
    (refused,) = [labels for labels in named if labels["problem"] == "provider_refused"]
    assert (refused["subject"], refused["runbook"]) == ("openai", "a-provider-refuses-our-key")
    assert "authentication failed (HTTP 401)" in refused["cause"]


@pytest.mark.asyncio
async def test_metrics_are_for_this_machine_or_the_password(open_bench):
    bench = open_bench()
    async with client(bench, "10.0.0.9", "dashboard-word") as http:
        assert (await http.get(METRICS_PATH)).status_code == 404
        assert (await http.get(METRICS_PATH, auth=("any", "dashboard-word"))).status_code == 200


def test_every_problem_has_its_section_in_the_runbook():
    assert {kind.runbook for kind in KINDS.values()} <= set(anchors(ROOT / "ops/runbook.md"))


# ── documents and alert rules ───────────────────────────────────────────────────────────────────────────

RULES = ROOT / "ops/prometheus/csi-processing.rules.yml"
TESTS = ROOT / "ops/prometheus/csi-processing.test.yml"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_alert_rules_name_metrics_that_are_exported_and_sections_that_exist(open_bench):
    exported = set(re.findall(r"^# TYPE (\w+)", render(open_bench().rt).decode(), re.MULTILINE))
    for rule in rules():
        assert set(re.findall(r"\bcsi_\w+", rule["expr"])) <= exported
        assert set(re.findall(r'problem="(\w+)"', rule["expr"])) <= KINDS.keys()
        command, _, anchor = rule["annotations"]["runbook"].rpartition(" ")
        assert (command, anchor in anchors(ROOT / "ops/runbook.md")) == ("csi docs runbook", True)


def test_every_alert_rule_is_tested_to_fire():
    cases = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: apt-get install prometheus)")
@pytest.mark.parametrize("command", [("check", "rules", RULES), ("test", "rules", TESTS)], ids=["check", "test"])
def test_promtool_agrees(command):
    done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_problem_and_alert_is_explained_to_operators(open_bench):
    tables = rows(section(ROOT / "docs/processing.md", "Health, problems and alerts"))
    told = {cells[0].strip("`"): cells for cells in tables}
    assert told.keys() == KINDS.keys() | {rule["alert"] for rule in rules()}
    assert {rule["alert"]: rule["for"] for rule in rules()} == {
        rule["alert"]: told[rule["alert"]][2] for rule in rules()
    }
    begun = rows(section(ROOT / "ops/runbook.md", "An alert of processing"))
    assert {name for cells in begun for name in codes(cells[0])} == {rule["alert"] for rule in rules()} | set(ALERTS)
    page = rows(section(ROOT / "docs/metrics.md", "Processing"))
    exported = set(re.findall(r"^# TYPE (\w+)", render(open_bench().rt).decode(), re.MULTILINE))
    assert {cells[0].strip("`") for cells in page} == exported


def test_a_problems_section_of_the_runbook_is_printed_by_its_id():
    shown = CliRunner().invoke(cli, ["docs", "runbook", "provider_refused"]).output
    assert shown.startswith("## A provider refuses our key")
