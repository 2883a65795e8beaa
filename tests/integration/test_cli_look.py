"""`csi status`, `top`, `events`, `slo` and `health` as a person or a script sees them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from csi.cli import output
from csi.cli.status import worker_words
from csi.status import overview
from csi.status.problems import Problem
from csi.status.verdict import StatusVerdict
from csi.status.worker import WorkerStatus
from csi.store import api_units, destinations, heartbeats
from csi.store.heartbeats import LastHeartbeat
from csi.store.models import Watch
from csi.web import health
from tests.fakes.raw_server import RawServer, Send, answer
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.operator import HOSTILE, add_delivered_event, filled_operator_rig, operator_rig

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def at_work(tmp_path):
    with filled_operator_rig(tmp_path) as built:
        yield built


# --- status and top


def test_status_says_what_flows_and_what_waits_for_what(at_work):
    text = at_work.call("status").stdout
    assert "worker    running for" in text
    assert "last hour 4 seen, 1 delivered, 1 dead, 2 waiting" in text
    assert "dead letters   1 open; csi dlq list --group-by error" in text
    assert re.search("standard events to default: 1; (the batch of lane standard is filling|due; waiting)", text)
    assert "watches of 127.0.0.1:9: " in text
    assert "the host rate-limited us; polling is paused: http 429" in text


def test_status_says_that_the_worker_is_gone_wherever_something_waits(tmp_path):
    with filled_operator_rig(tmp_path) as built:
        heartbeats.write("worker", built.now - 500, built.now - 900)
        found = built.json("status")
    assert found["worker"]["alive"] is False
    assert "last heartbeat" in found["worker"]["problem"]
    assert found["waiting"]
    assert all("last heartbeat" in one["why"] for one in found["waiting"])


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"paused_reason": "maintenance"}, "paused", "paused by the operator: maintenance"),
        (
            {"circuit": "open", "reason": "http 401", "next_probe_at": 9e12},
            "half_open",
            "the circuit breaker is half-open",
        ),
        ({"throttled_until": 30.0}, "throttled", "the receiver asks us to wait"),
    ],
    ids=["paused", "half_open", "throttled"],
)
def test_events_wait_for_a_destination_that_does_not_accept(at_work, changes, state, words):
    if "throttled_until" in changes:
        changes = {"throttled_until": at_work.now + changes["throttled_until"]}
    destinations.change("default", **changes)
    found = at_work.json("status")
    assert found["delivery"]["destinations"][0]["state"] == state
    (why,) = [one["why"] for one in found["waiting"] if one["what"] == "standard events to default"]
    assert words in why


def test_a_day_whose_units_are_used_up_is_said_and_breaks_nothing(at_work):
    api_units.exhaust(10_000, at_work.now)
    assert "today's units are used up" in at_work.call("status").stdout
    assert at_work.json("quota")["intervals"] == [
        {"seconds": None, "watches": 2, "as_configured": False, "as_wished": False}
    ]


def test_an_idle_installation(tmp_path):
    with operator_rig(tmp_path) as built:
        Watch.update(next_poll_at=built.now + 60).execute()
        text = built.call("status").stdout
    assert "no worker has ever run on this database; start it: csi run" in text
    assert "nothing is waiting" in text


def test_a_worker_that_hangs_is_not_to_be_started_a_second_time():
    beat = LastHeartbeat(beat_at=940.0, started_at=900.0, pid=4711)
    hung = WorkerStatus(1000.0, beat, process=4711)
    found = worker_words(SimpleNamespace(worker=hung, now=1000.0))
    assert "csi run" not in found
    assert "systemctl restart csi-worker, or end process 4711" in found


def test_top_prints_one_frame_where_no_terminal_is(at_work):
    result = at_work.call("top")
    assert result.exit_code == 0
    assert "NEWEST EVENTS" in result.stdout
    assert "Über delivered01" in result.stdout
    assert "\x1b" not in result.stdout


# --- events


def test_events_are_listed_newest_first_and_by_page(at_work):
    first = at_work.json("events", "list", "--limit", "3")
    rest = at_work.json("events", "list", "--limit", "3", "--before", str(first["next_before"]))
    assert [one["id"] for one in first["events"] + rest["events"]] == [4, 3, 2, 1]
    assert rest["next_before"] is None


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--state", "delivered"], [1]),
        (["--tier", "standard"], [3]),
        (["--source", "youtube_channel_rss"], []),
        (["--since", "30s"], [3, 2]),
        (["--search", "über DELIVERED"], []),
        (["--search", "Über DELIVERED"], [1]),
        (["--search", "playlist:dead0000001"], [4]),
        (["--search", "%"], []),
        (["--search", "_"], []),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_events_are_found_by_state_tier_source_age_and_word(at_work, options, ids):
    if options[1] == "_":
        ids = [one["id"] for one in at_work.json("events", "list")["events"]]  # every subject has a video_id
    assert [one["id"] for one in at_work.json("events", "list", *options)["events"]] == ids


@pytest.mark.parametrize(
    "what",
    ["4", "src:yt:playlist:dead0000001:PLone:1771761600", "youtube:video:dead0000001:PLone"],
    ids=["id", "event_id", "key"],
)
def test_one_event_is_shown_with_its_requests(at_work, what):
    found = at_work.json("events", "show", what)
    assert (found["id"], found["state"], found["event"]["subject"]["video_id"]) == (4, "dead", "dead0000001")
    assert [(one["outcome"], one["status"]) for one in found["attempts"]] == [("refused", 422)]
    text = at_work.call("events", "show", what).stdout
    assert "refused  http 422  http 422: invalid_schema" in text
    assert '"dedupe_key": "youtube:video:dead0000001:PLone"' in text


def test_an_event_that_is_not_there(at_work):
    result = at_work.call("events", "show", "nothing\x1b[31m")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no event" in result.stderr
    assert "\x1b" not in result.stderr


def test_tail_begins_a_little_back_and_follows(at_work, monkeypatch):
    def arrive(seconds):
        monkeypatch.setattr("csi.cli.events.time.sleep", lambda seconds: None)
        add_delivered_event(at_work, "arrived0001", ago=1.0)

    monkeypatch.setattr("csi.cli.events.time.sleep", arrive)
    result = at_work.call("events", "tail", "-n", "2", "--for", "300ms", "--json")
    titles = [json.loads(line)["title"] for line in result.stdout.splitlines()]
    assert titles == ["Über waiting0001", "Über dead0000001", "Über arrived0001"]


# --- slo


def test_slo_holds_figures_against_objectives(at_work):
    found = at_work.json("slo", "--since", "1h")
    assert (found["delivery"]["value"], found["delivery"]["met"], found["met"]) == (0.5, False, False)
    urgent = found["latency"][0]
    assert (urgent["tier"], urgent["target_p95_seconds"], urgent["met"]) == ("urgent", 30.0, True)
    assert 10 <= urgent["occurred_to_seen"]["p95"] < 11
    assert urgent["seen_to_accepted"]["p95"] == pytest.approx(2.0, abs=0.01)
    text = at_work.call("slo", "--since", "1h").stdout
    assert re.search(r"delivery success +≥ 95 % +50\.00 % +MISSED", text)


def test_slo_with_check_ends_with_6_when_an_objective_was_missed(at_work):
    assert at_work.call("slo").exit_code == 0
    assert at_work.call("slo", "--check").exit_code == 6


def test_slo_says_where_the_window_reaches_beyond_what_is_stored(at_work):
    found = at_work.json("slo", "--since", "90d")
    assert found["rows_since"] > found["since"]
    assert "events are kept for 30 days (retention.events_days)" in found["notes"][0]
    assert "uptime begins there" in found["notes"][1]


@pytest.mark.parametrize("since", ["24", "yesterday", "-1h"], ids=["bare number", "word", "negative"])
def test_a_window_that_is_no_duration_is_wrong_usage(at_work, since):
    assert at_work.call("slo", "--since", since).exit_code == 2


# --- health


def test_health_is_0_or_1_from_the_rows(tmp_path):
    with operator_rig(tmp_path, web={"port": 9}) as built:
        assert (built.call("health").exit_code, built.call("health", "--http").exit_code) == (1, 1)
        built.alive()
        result = built.call("health")
        assert (result.exit_code, result.stdout) == (0, "alive\n")
        assert built.json("health", "--ready", code=1)["reasons"] == ["youtube_playlist: not polled yet"]


def test_health_of_a_running_worker_is_0_although_the_configuration_file_is_broken(tmp_path):
    with operator_rig(tmp_path) as built:
        built.alive()
        built.config.write_text(f"csi:\n  state_dir: '{built.rt.settings.csi.state_dir}'  # here\n  log_level: [\n")
        result = built.call("health")
        assert (result.exit_code, result.stdout.splitlines()[1:]) == (0, [])
        assert result.stdout.startswith("alive; the configuration file is not valid, so only the stored state was")
        assert "config.yaml" in built.json("health")["note"]
        heartbeats.write("worker", built.now - 3600, built.now - 7200)
        assert built.json("health", code=1)["status"] == "stalled"


def test_health_with_an_emptied_file_says_that_the_database_may_be_elsewhere(tmp_path):
    with operator_rig(tmp_path) as built:
        built.alive()
        built.config.write_text("log_level: [\n")
        (reason,) = built.json("health", code=1)["reasons"]
        assert "perhaps it is elsewhere: the configuration file is not valid" in reason


def test_health_asks_the_sidecar_where_it_listens(tmp_path):
    page = RawServer([Send(answer(200, b'{"status": "alive", "reasons": []}'))])
    with page as there, operator_rig(tmp_path) as built:
        heartbeats.write("sidecar", built.now, built.now, address=there.url)
        assert built.call("health", "--http").stdout == "alive\n"


def test_health_is_1_whatever_is_wrong_and_says_it_in_one_line(tmp_path):
    with operator_rig(tmp_path) as built:
        built.config.write_text("csi: [")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{built.rt.settings.csi.database_url}{suffix}").unlink(missing_ok=True)
        result = built.call("health")
    assert (result.exit_code, result.stdout.startswith("unknown: ")) == (1, True)
    assert len(result.stdout.splitlines()) == 1


AWAY = Problem(
    *("receiver_away", "default", "degraded"),
    what="the circuit breaker of destination default is open",
    effect="its events stay pending",
    remedy="start the receiver: `csi delivery test`",
    since=1_771_761_600.0,
    fails=("ready", "live"),
    cause="connection refused",
    events=12,
)


def test_status_top_and_health_show_cause_and_events_of_a_problem(tmp_path, monkeypatch):
    notice = replace(AWAY, severity="notice", what="the receiver confirms no counts", cause=None, fails=())
    found = StatusVerdict("degraded", (notice, AWAY))
    monkeypatch.setattr(overview, "judge", lambda facts: found)
    monkeypatch.setattr(health, "judge", lambda facts: found)
    with operator_rig(tmp_path) as built:
        for command in (["status"], ["top", "--once"]):
            lines = built.call(*command).stdout.splitlines()
            first = lines.index("1 problem needs attention.")
            section = "the-receiver-answers-503-or-not-at-all"
            assert lines[first + 1 : first + 7] == [
                "  the circuit breaker of destination default is open: connection refused; its events stay pending",
                "    since 2026-02-22T12:00:00Z; 12 events are affected",
                "    → start the receiver: `csi delivery test`",
                f"    more: csi docs runbook {section}; dashboard page /#destinations",
                "1 notice:",
                "  the receiver confirms no counts; its events stay pending",
            ]
        said = "the circuit breaker of destination default is open: connection refused"
        assert built.call("health", "--ready").stdout == f"not_ready: {said} (12 events)\n"
        (problem,) = built.json("health", code=1)["problems"]
        assert (problem["cause"], problem["events"]) == ("connection refused", 12)
        assert problem["runbook"] == "/docs/runbook#the-receiver-answers-503-or-not-at-all"
        assert "remedy" not in problem


# --- hostile text


LOOKING = [
    "status",
    "top",
    "events list",
    "events show 5",
    "events tail -n 9 --for 0s",
    "tasks list",
    "tasks stats",
    "slo",
]


@pytest.mark.parametrize("line", LOOKING)
def test_no_title_error_or_name_moves_the_cursor(tmp_path, line):
    with filled_operator_rig(tmp_path) as built:
        add_delivered_event(built, "hostile0001", title=HOSTILE)
        destinations.change("default", circuit="open", reason=HOSTILE, last_error=HOSTILE)
        Watch.update(last_error=HOSTILE, name=HOSTILE, errors=1).execute()
        result = built.call(*line.split())
    assert result.exit_code == 0, result.output
    assert CONTROLS.findall(result.output) == []
    assert SECRET not in result.output


def test_the_hostile_title_would_show_without_care():
    assert CONTROLS.search(HOSTILE)
    assert not CONTROLS.search(output.plain(HOSTILE))
