"""Alerts and dashboard: they speak of metrics that are really there, and promtool says that they fire in time."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from csi import logs
from csi.status.facts import gather
from csi.status.problems import ALERTS, KINDS, Problem
from csi.status.slo import judge_tier
from csi.store import db
from csi.store.queries.slo_rows import EventTimes
from csi.web import metrics
from csi.worker.reload import reload
from tests.fakes.pages import ROOT, anchors, codes, rows, section
from tests.rigs.in_process import InProcessPipeline

RULES = ROOT / "ops/prometheus/csi.rules.yml"
TESTS = ROOT / "ops/prometheus/csi.test.yml"
DASHBOARD = json.loads((ROOT / "ops/grafana/csi.json").read_text())
PRD = ("CsiDown", "CsiDeliveryFailing", "CsiDuplicates", "CsiPollErrors", "CsiDeadLetters")
SILENCE = ("CsiWorkerSilent", "CsiPollStale", "CsiBacklogOld", "CsiReceiverAway", "CsiQuotaLow", "CsiReloadFailed")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian: apt-get install prometheus)"
)


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture
def exported(tmp_path: Path, clock) -> dict[str, set[str]]:
    """What the sidecar really exports: names of samples, with their labels."""
    sources = {"youtube_playlist": {"playlists": [{"id": "PLone"}]}, "youtube_channel_rss": {}}
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources=sources)
        page = metrics.render(line.rt).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    found: dict[str, set[str]] = {}
    for sample in samples:
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def named(expression: str) -> set[str]:
    return set(re.findall(r"\bcsi_\w+", expression))


def labels_used(expression: str) -> list[tuple[str, str]]:
    """(metric, label) of every selector."""
    found = re.findall(r"\b(csi_\w+)\{([^}]*)\}", expression)
    return [(metric, label) for metric, inner in found for label in re.findall(r"(\w+)\s*[=!]", inner)]


def expressions() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [*panels, *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", expressions(), ids=lambda text: " ".join(text.split())[:70])
def test_every_expression_is_about_metrics_that_are_exported(exported, expression):
    assert named(expression) <= exported.keys(), named(expression) - exported.keys()
    for metric, label in labels_used(expression):
        assert label in exported[metric] | {"instance", "job"}, (metric, label)


def test_the_panels_do_not_overlap_and_have_their_own_ids():
    boxes = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(box["x"] + dx, box["y"] + dy) for box in boxes for dx in range(box["w"]) for dy in range(box["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(boxes)


def test_the_alerts_of_the_prd_and_those_for_silence_are_there():
    assert set(PRD + SILENCE) <= {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_leads_to_a_place_in_the_runbook(rule):
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert page == "http://{{ $labels.instance }}/docs/runbook"
    assert anchor in anchors(ROOT / "ops/runbook.md") or 'label "runbook"' in anchor
    severity = rule["labels"]["severity"]
    assert severity in ("critical", "warning") or "$labels.severity" in severity


def test_every_problem_that_operators_are_notified_of_has_its_alert():
    """By a rule of its own, or by the two rules for all others."""
    own = {
        problem
        for rule in rules()
        if not rule["alert"].startswith("CsiProblem") and "max without" in rule["expr"]
        for names in re.findall(r'csi_problem\{problem=~?"([^"]+)"', rule["expr"])
        for problem in names.split("|")
    } | {"worker_silent"}
    for rule in rules():
        if rule["alert"].startswith("CsiProblem"):
            (others,) = re.findall(r'problem!~"([^"]+)"', rule["expr"])
            assert set(others.split("|")) == own
    assert own <= set(KINDS)


def problem(number=1, **changes):
    values = {"severity": "degraded", "what": "it fails", "effect": "late", "remedy": "wait", "fails": ("alert",)}
    return Problem("receiver_away", f"destination {number}", **values | changes)


def series(*problems):
    return {tuple(one.labels.values()): one.value for one in metrics.problem_series(problems).samples}


def test_a_problem_is_a_series_with_its_cause_and_its_section():
    found = series(problem(cause="connection refused"), problem(2, cause="401", is_proven=True, section="dead-letters"))
    assert found == {
        ("receiver_away", "destination 1", "degraded", "no", "connection refused", KINDS["receiver_away"].runbook): 1.0,
        ("receiver_away", "destination 2", "degraded", "yes", "401", "dead-letters"): 1.0,
    }


def test_a_problem_that_another_explains_or_that_is_only_worth_knowing_is_0():
    old = Problem("backlog_old", "events", "degraded", "old", "late", "wait", fails=("alert",))
    assert sorted(series(problem(), old, problem(2, fails=())).values()) == [0.0, 0.0, 1.0]


def test_the_number_of_series_is_limited_and_a_secret_is_in_none():
    logs.register_secret("hunter2-canary")
    found = series(*(problem(number, cause=f"hunter2-canary {number} " + "x" * 500) for number in range(100)))
    assert len(found) == metrics.SUBJECTS + 1
    assert {len(key[4]) <= metrics.CAUSE_CHARACTERS for key in found} == {True}
    assert "canary" not in str(found)


def test_the_latency_of_events_that_waited_for_seven_minutes_is_seven_minutes():
    waited = [EventTimes(number, "urgent", "delivered", 5.0, 5.0, 425.0, 0.0) for number in range(20)]
    found = judge_tier("urgent", waited, 1_000.0)
    assert (found.to_accepted.p95, found.slow) == (420.0, 20)


def test_the_runbook_begins_from_every_alert_and_every_trouble():
    told = {
        name for cells in rows(section(ROOT / "ops/runbook.md", "An alert, or a message")) for name in codes(cells[0])
    }
    assert told == {rule["alert"] for rule in rules()} | set(ALERTS)


def test_every_trouble_is_explained_to_operators():
    told = {codes(cells[0])[0] for cells in rows(section(ROOT / "docs/operate.md", "Notifications"))}
    assert told == set(KINDS)


def test_each_alert_is_in_the_operators_table_with_its_time():
    told = {cells[0].strip("`"): cells[2] for cells in rows(section(ROOT / "docs/operate.md", "Alerts"))}
    assert told == {rule["alert"]: rule["for"] for rule in rules()}


def test_each_alert_is_tested_to_fire():
    cases = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {rule["alert"] for rule in rules()}


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", RULES), ("test", "rules", TESTS)], ids=["check", "test"])
def test_promtool_agrees(command):
    done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_scrape_example_is_good(tmp_path):
    for rules_file in (ROOT / "ops/prometheus").glob("*.rules.yml"):
        shutil.copy(rules_file, tmp_path)
    shutil.copy(ROOT / "ops/prometheus/scrape.example.yml", tmp_path / "prometheus.yml")
    line = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_refused_reload_and_a_silent_worker_are_in_the_metrics(tmp_path, clock):
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={})
        assert "csi_config_reload_failed 0.0" in metrics.render(line.rt).decode()
        (tmp_path / "config.yaml").write_text("csi: {state_dirr: x}\n")
        line.rt.now = clock
        reload(line.rt)
        page = metrics.render(line.rt).decode()
    assert "csi_config_reload_failed 1.0" in page
    assert 'csi_config_reloads_total{result="refused"} 1.0' in page
    assert 'csi_troubles{trouble="reload_refused"} 1.0' in page
    assert 'csi_troubles{trouble="worker_silent"} 1.0' in page
    assert 'csi_troubles{trouble="disk_low"}' in page


def test_an_alert_that_another_problem_explains_is_in_neither_name_of_the_metric(tmp_path, clock, monkeypatch):
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={})
        facts = replace(gather(line.rt), oldest_pending=clock() - 3600)
        monkeypatch.setattr(metrics, "gather", lambda rt: facts)
        page = metrics.render(line.rt).decode()
    for name in ('csi_alerts{alert="%s"}', 'csi_troubles{trouble="%s"}'):
        assert f"{name % 'worker_silent'} 1.0" in page
        assert f"{name % 'backlog_old'} 0.0" in page
    assert 'csi_problems{problem="backlog_old"} 1.0' in page
