"""`csi dlq` as a person or a script sees it."""

import io
import json
import sys

import pytest

from csi.admin import replay_by_command
from csi.cli import output
from csi.clock import iso
from csi.dlq import dead_letters as dlq
from csi.dlq import replay, search
from csi.errors import StoreError
from csi.store import attempts, db, dedupe, destinations, events, inbox, outbox, watches
from csi.store.models import Event
from tests.rigs.operator import SOURCE, operator_rig, sample_event

HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def operator(tmp_path):
    with operator_rig(tmp_path) as built:
        yield built


def malformed(operator, key="malformed:youtube_playlist:abc", cause="malformed"):
    raw = {
        "event_type": "video_added_to_playlist",
        "occurred_at": "2026-02-22T12:00:00Z",
        "payload": {"x": 1},
        "watch": "PLone",
    }
    dedupe.remember([key], "malformed", operator.now, 90)
    dlq.add_item(key, SOURCE, raw, cause=cause, reason="no id", seen_at=operator.now - 9, now=operator.now)
    return db.value("SELECT id FROM dead_letter ORDER BY id DESC")


# --- looking


def test_list_shows_open_letters_the_newest_first(operator):
    operator.dead("older", ago=500)
    operator.dead("newer", ago=100)
    result = operator.call("dlq", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ID", "DIED", "STATE", "SOURCE", "TO", "CAUSE", "TRIES", "EVENT", "ERROR"]
    assert ["newer" in lines[1], "older" in lines[2]] == [True, True]
    assert lines[1].endswith("http 503")
    assert result.stderr == "2 dead letters\n"


def test_an_empty_queue_is_said_and_is_no_error(operator):
    result = operator.call("dlq", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 dead letters\n")


def test_list_as_json_has_every_field_of_the_prd(operator):
    number = operator.dead("a", ago=100)
    (letter,) = operator.json("dlq", "list")["letters"]
    assert letter | {"first_seen_at": None, "died_at": None} == {
        "id": number,
        "kind": "event",
        "event_id": sample_event("a").event_id,
        "source": SOURCE,
        "destination": "default",
        "cause": "transient",
        "error": "http 503",
        "status": 503,
        "retry_count": 3,
        "rounds": 0,
        "state": "open",
        "first_seen_at": None,
        "died_at": None,
        "closed_at": None,
        "result": None,
    }
    assert letter["first_seen_at"].endswith("Z")
    assert letter["died_at"].endswith("Z")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--since", "1 hour ago"], {"b", "c"}),
        (["--since", "90m"], {"b", "c"}),
        (["--source", SOURCE], {"a", "b", "c"}),
        (["--source", "other"], set()),
        (["--destination", "second"], {"c"}),
        (["--error-like", "REFUSED"], {"b"}),
        (["--error-like", "%conn%ref%"], {"b"}),
        (["--error-like", "http_503"], set()),
        (["--error-like", "503", "--since", "1h"], {"c"}),
    ],
)
def test_filters(operator, arguments, names):
    operator.dead("a", ago=2 * HOUR)
    operator.dead("b", ago=1000, reason="connection refused")
    operator.dead("c", ago=500, to="second")
    letters = operator.json("dlq", "list", *arguments)["letters"]
    assert {letter["event_id"].split(":")[3] for letter in letters} == names


@pytest.mark.parametrize("text", ["30", "soon", "", "ago", "an hour ago", "1 hour before", "-1h"])
@pytest.mark.parametrize("command", [["list", "--since"], ["replay", "--since"], ["prune", "--older-than"]])
def test_durations_by_the_strict_grammar(operator, command, text):
    result = operator.call("dlq", *command, text)
    assert result.exit_code == 2
    assert "is not a duration" in result.output or "unit" in result.output


def test_older_than_takes_no_ago(operator):
    assert operator.call("dlq", "prune", "--older-than", "1 day ago").exit_code == 2


def test_groups_by_error(operator):
    for name in "abc":
        operator.dead(name)
    operator.dead("d", reason="invalid_schema", cause="event", status=207)
    found = operator.json("dlq", "list", "--group-by", "error")
    assert [(group["key"], group["count"], group["causes"]) for group in found["groups"]] == [
        ("http 503", 3, ["transient"]),
        ("invalid_schema", 1, ["event"]),
    ]
    assert found["total"] == 4
    text = operator.call("dlq", "list", "--group-by", "error").stdout
    assert text.splitlines()[1].split()[0] == "3"


def test_limit_says_that_there_are_more(operator):
    for name in "abc":
        operator.dead(name)
    result = operator.call("dlq", "list", "--limit", "2")
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == "3 dead letters, the newest 2 shown\n"


def test_closed_letters_are_shown_when_asked_for(operator):
    number = operator.dead("a")
    dlq.discard(number, operator.now, "tidy")
    assert operator.json("dlq", "list")["total"] == 0
    (letter,) = operator.json("dlq", "list", "--state", "all")["letters"]
    assert (letter["state"], letter["result"]) == ("discarded", "tidy")


def test_show_has_attempts_with_their_answers_and_the_payload(operator):
    number = operator.dead("a")
    attempt = attempts.start(db.value("SELECT id FROM batches"), "default", "req_1", 1, "ascii", operator.now - 70)
    answer = '{"ok": false}\x1b[31m'
    attempts.finish(attempt, "transient", operator.now - 69, status=503, reason="http 503", answer=answer)
    shown = operator.json("dlq", "show", str(number))
    assert [(one["status"], one["outcome"]) for one in shown["attempts"]] == [(503, "transient")]
    assert shown["payload"]["subject"]["title"] == "Über a"
    text = operator.call("dlq", "show", str(number)).stdout
    assert "http 503" in text
    assert '{"ok": false}\\x1b[31m' in text, "an answer cannot steer the terminal"
    assert "Über a" in text


def test_show_of_a_malformed_item_has_its_raw_payload(operator):
    number = malformed(operator)
    shown = operator.json("dlq", "show", str(number))
    assert (shown["kind"], shown["destination"], shown["payload"]["raw"]["payload"]) == ("item", None, {"x": 1})


def test_show_of_nothing_is_an_error(operator):
    result = operator.call("dlq", "show", "77")
    assert (result.exit_code, result.stderr) == (1, "there is no dead letter 77\n")


def test_a_secret_that_an_answer_echoes_is_not_shown(operator):
    number = operator.dead("a", reason="said csi-test-secret")
    for arguments in (["list"], ["list", "--json"], ["list", "--group-by", "error"], ["show", str(number)]):
        assert "csi-test-secret" not in operator.call("dlq", *arguments).output


def test_no_database_is_made_by_looking(tmp_path, operator):
    operator.call("dlq", "list")
    for file in (tmp_path / "state").iterdir():
        file.unlink()
    result = operator.call("dlq", "list")
    assert isinstance(result.exception, StoreError)
    assert "no database" in str(result.exception)
    assert not (tmp_path / "state" / "csi.db").exists()


# --- replay


def test_replay_by_id_makes_it_pending_and_says_who_sends(operator):
    number = operator.dead("a")
    operator.alive()
    result = operator.call("dlq", "replay", "--id", str(number))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "1 of 1 dead letter pending again; the worker sends them\n"
    assert (db.value("SELECT state FROM dead_letter"), Event.get().state, db.value("SELECT state FROM outbox")) == (
        "replaying",
        "pending",
        "pending",
    )


def test_replay_says_when_nothing_will_be_sent(operator):
    number = operator.dead("a")
    held_at = operator.now
    destinations.change("default", paused_reason="maintenance", paused_at=held_at)
    notes = operator.json("dlq", "replay", "--id", str(number))["notes"]
    assert notes == [
        "no worker has ever run on this database",
        f"default: delivery is paused by the operator since {iso(held_at)}: maintenance",
    ]


def test_replay_by_error_since_and_all(operator):
    operator.alive()
    for name, ago, reason in (("a", 9000, "http 503"), ("b", 60, "timeout"), ("c", 60, "http 503"), ("d", 9000, "tls")):
        operator.dead(name, ago=ago, reason=reason)
    assert operator.json("dlq", "replay", "--error-like", "time")["sent"] == 1
    assert operator.json("dlq", "replay", "--since", "1 hour ago")["sent"] == 1
    assert operator.json("dlq", "replay", "--all")["sent"] == 2
    assert operator.json("dlq", "replay", "--all")["chosen"] == 0
    assert operator.call("dlq", "replay", "--all").stdout == "no open dead letter matches\n"


def test_some_failed_is_exit_code_5_with_the_reason_of_each(operator):
    good, closed, gone = operator.dead("a"), operator.dead("b"), operator.dead("c", to="gone")
    dlq.discard(closed, operator.now, "tidy")
    result = operator.call("dlq", "replay", *(f"--id={number}" for number in (good, closed, gone, 99)))
    assert result.exit_code == 5
    assert result.stdout.startswith("1 of 4 dead letters pending again")
    failed = [line for line in result.stderr.splitlines() if line.startswith("failed")]
    assert failed[0].startswith(f"failed: {closed}: it was discarded at ")
    assert failed[1] == f"failed: {gone}: its destination 'gone' is no longer configured"
    assert failed[2] == "failed: 99: this dead letter does not exist"
    assert db.column("SELECT state FROM dead_letter ORDER BY id") == [
        "replaying",
        "discarded",
        "open",
    ]


def test_a_letter_that_is_being_replayed_is_not_replayed_again(operator):
    number = str(operator.dead("a"))
    assert operator.json("dlq", "replay", "--id", number)["sent"] == 1
    again = operator.json("dlq", "replay", "--id", number, code=5)
    assert (again["sent"], again["letters"][0]["note"]) == (0, "it is already being replayed")
    assert db.number("SELECT COUNT(*) FROM outbox") == 1


def test_dry_run_changes_nothing(operator):
    operator.dead("a")
    result = operator.call("dlq", "replay", "--all", "--dry-run")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "1 dead letter would be replayed")
    assert (db.value("SELECT state FROM dead_letter"), db.number("SELECT COUNT(*) FROM outbox")) == ("open", 0)


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_dry_run_says_what_would_fail(operator, command):
    first, second = operator.dead("a"), operator.dead("b")
    operator.json("dlq", "replay", "--id", str(first))
    ids = [word for number in (first, second, 99) for word in ("--id", str(number))]
    result = operator.call("dlq", command, *ids, "--dry-run")
    assert (result.exit_code, result.stdout.startswith("1 dead letter would be")) == (5, True)
    assert result.stderr.splitlines() == [
        f"failed: {first}: it is replaying",
        "failed: 99: this dead letter does not exist",
    ]
    assert operator.json("dlq", command, *ids, "--dry-run", code=5)["chosen"] == 1


@pytest.mark.parametrize(
    "arguments", [[], ["--id", "1", "--all"], ["--id", "1", "--since", "1h"], ["--id", "0"], ["--id", "x"]]
)
def test_replay_wants_to_know_exactly_which(operator, arguments):
    assert operator.call("dlq", "replay", *arguments).exit_code == 2


def test_on_a_terminal_many_are_asked_for(operator, monkeypatch):
    operator.dead("a")
    operator.dead("b")
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setattr("csi.cli.dlq.is_terminal", lambda: True)
    assert operator.call("dlq", "replay", "--all", text="n\n").exit_code == 1
    assert dlq.open_count() == 2
    assert operator.call("dlq", "replay", "--all", text="y\n").exit_code == 0
    assert dlq.open_count() == 0


def test_an_event_whose_row_is_gone_is_made_anew_with_the_same_id(operator):
    operator.dead("a")
    (letter,) = search.newest(search.DeadLetterFilter(), 1)
    before = events.as_contract(Event.get(), None)
    for table in ("batch_events", "events"):
        events.run(f"DELETE FROM {table}")
    (outcome,) = replay.replay([letter], operator.now)
    assert (outcome.is_sent, outcome.note) == (True, "pending; its event was rebuilt from the dead letter")
    assert events.as_contract(Event.get(), None) == before
    assert db.value("SELECT destination FROM outbox") == "default"


def test_a_letter_that_cannot_be_made_into_an_event_again_stays_open(operator):
    number = operator.dead("a")
    for table in ("batch_events", "events"):
        events.run(f"DELETE FROM {table}")
    events.run("UPDATE dead_letter SET event_json = ?", json.dumps({"event_id": "other"}))
    result = operator.json("dlq", "replay", "--id", str(number), code=5)
    assert "not a valid event" in result["letters"][0]["note"]
    assert db.value("SELECT state FROM dead_letter") == "open"


def test_an_event_that_is_on_its_way_already_is_not_sent_twice(operator):
    number = operator.dead("a")
    outbox.requeue(sample_event("a").event_id, "default", operator.now)
    result = operator.json("dlq", "replay", "--id", str(number))
    assert result["letters"][0]["note"] == "already in the outbox; the dead letter closes with its delivery"
    assert db.number("SELECT COUNT(*) FROM outbox") == 1
    dlq.close_replays([sample_event("a").event_id], "default", result="delivered", now=operator.now)
    assert (db.value("SELECT state FROM dead_letter"), db.value("SELECT result FROM dead_letter")) == (
        "replayed",
        "delivered",
    )


def test_a_malformed_item_goes_back_to_the_inbox_and_is_not_known_any_more(operator):
    number = malformed(operator)
    result = operator.json("dlq", "replay", "--id", str(number))
    assert result["letters"][0]["note"] == "back in the inbox; it is normalized again"
    ((item_key, letter_id, payload),) = db.fetch("SELECT item_key, letter_id, payload_json FROM inbox")
    assert (item_key, letter_id, json.loads(payload)) == ("malformed:youtube_playlist:abc", number, {"x": 1})
    assert dedupe.known(["malformed:youtube_playlist:abc"]) == {"malformed:youtube_playlist:abc"}, "by the inbox, now"
    assert db.value("SELECT state FROM dead_letter") == "replaying"


def test_a_quarantined_item_is_handled_again_from_its_own_row(operator):
    watch = watches.find(watches.find_id(SOURCE, "PLone"))
    (item_id,) = inbox.put(watch, [inbox.NewItem("youtube:video:q:PLone", "t", "", {"y": 2})], operator.now)
    inbox.quarantine(inbox.claim(item_id, operator.now)[0])
    number = malformed(operator, "youtube:video:q:PLone", cause="crash")
    operator.json("dlq", "replay", "--id", str(number))
    ((*item, payload),) = db.fetch("SELECT id, state, claims, payload_json FROM inbox")
    assert (item, json.loads(payload)) == ([item_id, "new", 0], {"y": 2})


def test_a_malformed_item_whose_watch_nobody_knows_says_so(operator):
    number = malformed(operator)
    events.run("UPDATE dead_letter SET event_json = ?", json.dumps({"raw": {"payload": {}, "watch": "PLgone"}}))
    note = operator.json("dlq", "replay", "--id", str(number), code=5)["letters"][0]["note"]
    assert note == "its watch 'PLgone' no longer exists"


# --- discard and prune


def test_discard_asks_first(operator):
    number = str(operator.dead("a"))
    result = operator.call("dlq", "discard", "--id", number)
    assert (result.exit_code, db.value("SELECT state FROM dead_letter")) == (2, "open")
    assert "--yes" in result.output
    assert operator.call("dlq", "discard", "--id", number, "--dry-run").stdout.startswith("1 dead letter would be")
    assert db.value("SELECT state FROM dead_letter") == "open"
    assert operator.json("dlq", "discard", "--id", number, "--yes", "--reason", "spam") == {
        "discarded": [int(number)],
        "failed": {},
    }
    assert (db.value("SELECT state FROM dead_letter"), db.value("SELECT result FROM dead_letter")) == (
        "discarded",
        "spam",
    )
    assert operator.json("dlq", "discard", "--id", number, "--yes", code=5)["failed"] == {number: "it is discarded"}


def test_a_discarded_item_leaves_the_inbox_and_stays_known(operator):
    watch = watches.find(watches.find_id(SOURCE, "PLone"))
    (item_id,) = inbox.put(watch, [inbox.NewItem("youtube:video:q:PLone", "t", "", {})], operator.now)
    inbox.quarantine(inbox.claim(item_id, operator.now)[0])
    dlq.add_item("youtube:video:q:PLone", SOURCE, {}, cause="crash", reason="r", seen_at=1.0, now=operator.now)
    operator.json("dlq", "discard", "--id", str(db.value("SELECT id FROM dead_letter")), "--yes")
    assert db.number("SELECT COUNT(*) FROM inbox") == 0
    assert dedupe.known(["youtube:video:q:PLone"]) == {"youtube:video:q:PLone"}


def test_prune_deletes_what_is_older_and_asks_first(operator):
    old, young, moving = (
        operator.dead("a", ago=100 * DAY),
        operator.dead("b", ago=10 * DAY),
        operator.dead("c", ago=99 * DAY),
    )
    dlq.begin_replay(moving)
    refused = operator.call("dlq", "prune", "--older-than", "90d")
    assert refused.exit_code == 2
    assert "1 of them are open" in refused.output
    assert operator.json("dlq", "prune", "--older-than", "90d", "--dry-run") == {
        "old": 1,
        "open": 1,
        "deleted": 0,
        "dry_run": True,
    }
    assert operator.call("dlq", "prune", "--older-than", "90d", "--yes").stdout == "1 dead letter deleted\n"
    assert db.column("SELECT id FROM dead_letter ORDER BY id") == [young, moving]
    assert old not in (young, moving)


def test_nothing_to_prune_needs_no_question(operator):
    operator.dead("a")
    result = operator.call("dlq", "prune", "--older-than", "90d")
    assert (result.exit_code, result.stdout) == (0, "0 dead letters deleted\n")


# --- the rest


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (["--all", "--wait"], 120.0),
        (["--wait", "--all"], 120.0),
        (["--wait", "1m30s", "--all"], 90.0),
        (["--all"], None),
    ],
)
def test_wait_has_a_bound(operator, monkeypatch, arguments, seconds):
    operator.dead("a")
    waits = []

    def await_results(ids, bound, notice):
        waits.append(bound)
        return [replay_by_command.ReplayResult(number, "delivered") for number in ids]

    monkeypatch.setattr(replay_by_command, "wait_for_results", await_results)
    assert operator.call("dlq", "replay", *arguments).exit_code == 0
    assert waits == ([] if seconds is None else [seconds])


def test_waiting_ends_with_every_result_or_with_the_time(operator):
    first, second = operator.dead("a"), operator.dead("b")
    replay_by_command.replay_all(operator.rt, [first, second])
    looks = []

    def rest(seconds):
        looks.append(seconds)
        dlq.close_replays(
            [sample_event("ab"[len(looks) - 1]).event_id], "default", result="delivered", now=operator.now
        )

    results = replay_by_command.wait_for_results([first, second], 60.0, rest=rest)
    assert ([one.result for one in results], len(looks)) == (["delivered", "delivered"], 2)
    operator.dead("c")
    third = db.value("SELECT id FROM dead_letter ORDER BY id DESC")
    replay_by_command.replay_all(operator.rt, [third])
    assert replay_by_command.wait_for_results([third], 0.0) == [replay_by_command.ReplayResult(third, None)]


@pytest.mark.parametrize("result", ["died again", "not finished yet"])
def test_a_replay_that_did_not_arrive_is_exit_code_5(operator, monkeypatch, result):
    number = operator.dead("a")
    ending = None if result == "not finished yet" else result
    monkeypatch.setattr(
        replay_by_command, "wait_for_results", lambda *given: [replay_by_command.ReplayResult(number, ending)]
    )
    done = operator.call("dlq", "replay", "--id", str(number), "--wait")
    assert done.exit_code == 5
    assert f"failed: {number}: {result}" in done.stderr


def test_a_bar_on_a_terminal_and_silence_elsewhere(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    with output.progress(3, "sending") as notice:
        notice(1)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with output.progress(3, "sending") as notice:
        notice(3)
    assert "3/3" in sys.stderr.getvalue()


def test_the_commands_work_on_postgresql(tmp_path, postgres_url):
    with operator_rig(tmp_path, csi={"database": postgres_url}) as built:
        number = built.dead("a", ago=100)
        assert built.json("dlq", "list", "--since", "1h", "--error-like", "50")["total"] == 1
        assert built.json("dlq", "list", "--group-by", "error")["groups"][0]["count"] == 1
        assert built.json("dlq", "show", str(number))["attempts"] == []
        assert built.json("trace", "a:PLone", code=0)["found"] == 1
        assert built.json("dlq", "replay", "--all")["sent"] == 1
        assert built.json("delivery", "status")["destinations"][0]["pending"] == 1
        assert built.json("prune", "--dry-run")["total"] == 0


def test_an_old_schema_is_said_and_not_changed(tmp_path, operator):
    events.run("DELETE FROM schema_migration WHERE name = '0003_delivery'")
    result = operator.call("dlq", "list")
    assert isinstance(result.exception, StoreError)
    assert "csi db migrate" in str(result.exception)
