"""Problems and alerts: each notification once when it has lasted, once when it is resolved, and never a secret."""

import json
import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from csi import notifications
from csi.alerts import message
from csi.errors import ConfigError
from csi.scheduling.backpressure import Pressure
from csi.status.alert_overview import firing
from csi.status.destinations import DestinationState
from csi.status.facts import SourcePlan, SystemFacts
from csi.status.notification_problems import NotificationFacts
from csi.status.problems import ALERTS, KINDS, PROBLEMS, to_notify
from csi.status.push import PushFacts, WatchSubscription
from csi.status.storage import StorageStatus
from csi.status.verdict import judge, verdict
from csi.status.worker import WorkerStatus
from csi.store import alerts, db, destinations, incidents, reload_results
from csi.store.api_refusals import ApiRefusal
from csi.store.backlog_samples import BacklogSample
from csi.store.backups import Backup, BackupRecord
from csi.store.database_faults import READ_ONLY
from csi.store.destinations import DestinationRow
from csi.store.heartbeats import LastHeartbeat
from csi.store.held_removals import HeldRemoval, LostWatch
from csi.store.inbound_endpoints import Endpoint
from csi.store.inbound_messages import FailedMessages
from csi.store.incidents import Incident
from csi.store.models import Host
from csi.store.notification_log import FailingTarget
from csi.store.queries.charts import RecentDeadLetters
from csi.store.queries.job_figures import DeadJobs
from csi.store.subscriptions import Subscription
from csi.store.watches import WatchTimes
from csi.worker import alerting
from csi.worker.maintenance import write_heartbeat
from tests.fakes.raw_server import static_page
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline

NOW = 1_771_761_600.0
SOURCE = (SourcePlan("youtube_playlist", 1, 0.0),)
GOOD_BACKUP = Backup(NOW - 93_601, "/var/backups/csi/csi-1.db", 1.0, 9, None)
FAILED_BACKUP = Backup(NOW - 60, "/var/backups/csi/csi-2.db", 1.0, None, "disk full")


def watch(age, interval=30.0):
    return (WatchTimes("youtube_playlist", interval, NOW + 20, NOW, None if age is None else NOW - age, 0),)


def one_watch(**changes):
    return replace(watch(10)[0], ref="UCone", name="One", **changes)


def destination(**changes):
    return (DestinationState("default", "half_open", DestinationRow("default", **changes)),)


def facts(age=5.0, started=86_400.0, stall=None, process=None, notifier=None, **changes):
    beat = LastHeartbeat(NOW - age, NOW - started, pid=4711, stall_json=stall)
    return SystemFacts(now=NOW, worker=WorkerStatus(NOW, beat, process, notifier), **changes)


HANGS = '{"reason": null, "since": null, "hung": [{"task": "poll_watch", "since": 1771761400}]}'
STALLED = '{"reason": "the scheduler hangs", "since": 1771761500, "hung": []}'


def samples(*due, seconds=30.0, delivered=0):
    """The last is of now."""
    times = (NOW - seconds * (len(due) - number - 1) for number in range(len(due)))
    return tuple(BacklogSample("default", at, count, count, delivered) for at, count in zip(times, due, strict=True))


def accepting(**changes):
    return (DestinationState("default", "accepting", DestinationRow("default", answered_at=NOW - 9, **changes)),)


def sender(**changes):
    times = {"created_at": NOW - 999, "refused_since": NOW - 9}
    return Endpoint(**dict.fromkeys(field.name for field in fields(Endpoint)) | {"name": "shop"} | times | changes)


def subscription(failing_since):
    state = {"kind": "websub", "failures": 4, "failing_since": failing_since, "last_error": "the hub answered 503"}
    return Subscription(**dict.fromkeys(field.name for field in fields(Subscription)) | state)


CASES = {
    "worker_silent": facts(31),
    "threads_hung": facts(stall=HANGS),
    "notifier_silent": facts(notifier=NOW - 181),
    "destination_paused": facts(
        destinations=destination(paused_reason="moving", paused_at=NOW - 60), backlog_samples=samples(3)
    ),
    "delivery_off": facts(delivery_is_on=False, oldest_pending=NOW - 9, backlog_samples=samples(84)),
    "certificate_expiring": facts(destinations=accepting(certificate_expires_at=NOW + 86_400)),
    "backlog_growing": facts(destinations=accepting(), backlog_samples=samples(*range(20, 42))),
    "reading_slowed": facts(pressure=Pressure(150_000, 200_000, 4.5)),
    "source_stale": facts(sources=SOURCE, watches=watch(601)),
    "backlog_old": facts(oldest_pending=NOW - 1801),
    "receiver_away": facts(destinations=destination(circuit="open", reason="http 401")),
    "dead_letters": facts(dead_letters=101),
    "quota_low": facts(quota_left=999, quota_buffer=1000),
    "quota_spent": facts(quota_left=0, quota_buffer=1000, quota_resets_at=NOW + 3600),
    "source_unusable": facts(unusable_sources=(("notes", "csi_notes cannot be imported"),)),
    "host_outage": facts(outages=(Host(host="h", outage_since=NOW - 60, outage_watches=3),)),
    "api_refused": facts(api_refusals=(ApiRefusal("YOUTUBE_API_KEY", "the API key is not valid", NOW - 5),)),
    "items_missed": facts(
        incidents=(Incident(7, "items_missed", "A", "items", "no key", "lost", "set it", NOW, None),)
    ),
    "watch_denied": facts(watches=(one_watch(errors=1, error_kind="denied", health_since=NOW - 9),)),
    "watch_gone": facts(watches=(one_watch(health="dead", gone_at=NOW - 9),)),
    "feed_stale": facts(watches=(one_watch(stale_since=NOW - 9),)),
    "jobs_dead": facts(dead_jobs=DeadJobs(("0190-a",), since=NOW - 9)),
    "reload_refused": facts(reload_error="config.yaml:3: unknown key"),
    "disk_low": facts(disk_used=0.91),
    "removal_held": facts(held_removal=HeldRemoval((LostWatch(1, "reddit", "a", None, NOW - 9),), 1)),
    "watches_removed": facts(
        incidents=(Incident(1, "watches_removed", "reddit", "gone", None, "not seen", "put back", NOW - 9, None),)
    ),
    "backup_failed": facts(backup_max_age=93_600.0, backups=BackupRecord(NOW - 9, None, FAILED_BACKUP, NOW - 60)),
    "backup_old": facts(backup_max_age=93_600.0, backups=BackupRecord(NOW - 1e6, GOOD_BACKUP)),
    "push_ended": facts(
        incidents=(Incident(3, "push_ended", "composio", "expired", None, "no push", "connect it again", NOW, None),)
    ),
    "inbound_refused": facts(push=PushFacts(senders=(sender(refused=5, last_refusal="bad_signature"),))),
    "inbound_failed": facts(push=PushFacts(failed=(FailedMessages("shop", 2, NOW - 9, "no such watch"),))),
    "notification_failed": facts(notifications=NotificationFacts(failing=(FailingTarget("json", NOW - 60, 2),))),
    "storage": facts(storage=StorageStatus(fault=READ_ONLY)),
}
OTHERS = {
    "no_notification_target": facts(notifications=NotificationFacts(has_heartbeat_url=False)),
    "clock_held": facts(clock_hold="the wall clock jumped by 3600 s", clock_held_since=NOW - 60),
    "watches_overdue": facts(watches=(WatchTimes("youtube_playlist", 30.0, NOW - 181, None, NOW, 0),)),
    "push_failing": facts(push=PushFacts((WatchSubscription(subscription(NOW - 3601), "feed", "One"),))),
    "watch_quiet": facts(watches=(one_watch(first_read_at=NOW - 900_000, usual_gap=3600.0),)),
}


def alerts_of(found):
    return [problem.id for problem in judge(found).problems if "alert" in problem.fails]


def test_every_problem_has_its_case():
    assert (set(CASES), set(CASES | OTHERS)) == (set(ALERTS), set(PROBLEMS))


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_seen_alone_and_says_what_to_do(name):
    found = judge((CASES | OTHERS)[name])
    (problem,) = found.problems
    assert (problem.id, found.status) == (name, "ok" if problem.severity == "notice" else problem.severity)
    assert all((problem.what, problem.effect, problem.remedy))
    assert alerts_of((CASES | OTHERS)[name]) == ([name] if name in ALERTS else [])
    # The alert's row remembers when it began; where there is no row, the facts do. No target is a setting.
    assert name in ALERTS or name == "no_notification_target" or problem.since is not None


@pytest.mark.parametrize(("age", "words"), [(5, "restart the worker"), (31, "start it: `csi run`")])
def test_the_remedy_for_overdue_watches_says_to_start_only_a_worker_that_does_not_run(age, words):
    late = WatchTimes("youtube_playlist", 30.0, NOW - 181, None, NOW, 0)
    (problem,) = [one for one in judge(facts(age, watches=(late,))).problems if one.id == "watches_overdue"]
    assert words in problem.remedy


@pytest.mark.parametrize(
    "quiet",
    [
        facts(),
        facts(sources=SOURCE, watches=watch(119)),
        facts(sources=SOURCE, watches=watch(10_000, interval=3600.0)),
        facts(sources=SOURCE, watches=watch(None), started=60.0),
        facts(oldest_pending=NOW - 1799, dead_letters=100, quota_left=1000, quota_buffer=1000, disk_used=0.9),
    ],
    ids=["nothing", "polled lately", "polled seldom", "just started", "at the limits"],
)
def test_no_alert_fires_too_early(quiet):
    assert alerts_of(quiet) == []


@pytest.mark.parametrize(
    ("dead", "delivered", "fires"), [(4, 0, False), (5, 4, True), (5, 5, False), (6, 5, True), (1000, 1000, False)]
)
def test_dead_letters_are_judged_by_share_beside_their_number(dead, delivered, fires):
    found = facts(dead_letters=min(dead, 100), recent_dead_letters=RecentDeadLetters(dead, delivered))
    assert alerts_of(found) == (["dead_letters"] if fires else [])


def test_a_healthy_installation_is_ok():
    assert judge(facts(sources=SOURCE, watches=watch(10))).status == "ok"


def test_a_heartbeat_from_the_future_is_no_sign_of_a_running_worker():
    (problem,) = judge(facts(-31)).problems
    assert (problem.id, "clock" in problem.remedy) == ("worker_silent", True)


def test_a_worker_that_says_why_it_makes_no_progress_is_reported_at_once_with_the_cause():
    (problem,) = judge(facts(stall=STALLED)).problems
    assert problem.what_and_why == "the worker makes no progress: the scheduler hangs"
    assert (problem.is_proven, problem.since, problem.fails) == (True, 1771761500, ("ready", "live", "alert"))


def test_silence_is_proven_after_a_minute():
    assert [judge(facts(age)).problems[0].is_proven for age in (31, 59, 61)] == [False, False, True]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (facts(45), "start it: `csi run`"),
        (facts(45, process=4711), "restart it: `systemctl restart csi-worker`, or end process 4711 (`kill -9 4711`)"),
        (facts(45, process=0), "`kill -9 4711`"),
        (facts(stall=STALLED), "`kill 4711`"),
        (facts(3600, stall=STALLED), "start it: `csi run`"),
    ],
    ids=["gone", "runs and is silent", "its number is in the heartbeat", "stalled", "stalled, then gone"],
)
def test_the_remedy_for_a_silent_worker_depends_on_whether_its_process_runs(found, words):
    assert words in judge(found).problems[0].remedy


def test_no_worker_ever():
    assert "ever" in judge(SystemFacts(NOW, WorkerStatus(NOW, None))).problems[0].what


@pytest.fixture
def notification_target():
    """Where messages arrive: apprise's own JSON form, by real HTTP on loopback."""
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as ua:
        yield ua


def sent_messages(notification_target):
    return [
        (json.loads(request.body)["title"], json.loads(request.body)["message"])
        for request in notification_target.requests
    ]


@pytest.fixture
def line(tmp_path, clock, notification_target):
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    with db.connection():
        yield build(tmp_path, clock, notification_target)


def build(tmp_path, clock, notification_target, **secrets):
    port = notification_target.url.split(":")[2].split("/")[0]
    urls = {"CSI_NOTIFY_URLS": f"json://127.0.0.1:{port}/token-of-the-target"} | secrets
    built = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", secrets=urls, sources={})
    write_heartbeat(built.rt, clock())
    return built


def away(line, opened=True):
    destinations.change("default", circuit="open" if opened else "closed", reason="http 503")


def test_a_trouble_is_told_once_at_its_start_and_once_at_its_end(line, clock, notification_target):
    away(line)
    alerting.evaluate(line.rt)
    assert sent_messages(notification_target) == []
    for _ in range(3):
        clock.move(301)
        alerting.evaluate(line.rt)
    ((title, text),) = sent_messages(notification_target)
    assert title == "CSI csi-vps-01: receiver away (default)"
    assert "the receiver is unavailable (503)" in text
    assert "csi delivery test --destination default" in text
    away(line, opened=False)
    for _ in range(4):
        clock.move(15)
        alerting.evaluate(line.rt)
    assert [title for title, _ in sent_messages(notification_target)][1:] == [
        "CSI csi-vps-01: receiver away (default): resolved"
    ]


def test_a_certificate_is_reported_again_when_two_days_are_left(line, clock, notification_target):
    destinations.change("default", certificate_expires_at=clock() + 10 * 86_400)
    for _ in range(3):
        alerting.evaluate(line.rt)
    assert len(notification_target.requests) == 1
    clock.move(8.5 * 86_400)
    write_heartbeat(line.rt, clock())
    for _ in range(3):
        alerting.evaluate(line.rt)
    found = [json.loads(request.body) for request in notification_target.requests]
    own = [(one["type"], one["message"]) for one in found if "certificate" in one["title"]]
    assert [kind for kind, _ in own] == ["info", "warning"]
    assert "expires in 1 day" in own[1][1]


def test_after_a_suspend_the_notifier_does_not_report_itself(line, clock, notification_target):
    began = clock()
    alerting.note_round(line.rt, began)
    clock.move(2 * 86_400)
    write_heartbeat(line.rt, began)
    for is_notifier in (True, False):  # the worker's own thread, and the sidecar
        alerting.evaluate(line.rt, is_notifier=is_notifier)
        assert "notifier_silent" not in {alert.name for alert in alerts.firing()}
    for _ in range(8):  # three minutes later it still has not done its work
        clock.move(25)
        write_heartbeat(line.rt, began)
    alerting.evaluate(line.rt)
    assert "notifier_silent" in {alert.name for alert in alerts.firing()}


def test_an_alert_that_recovers_for_moments_is_one_episode_with_the_sum_of_its_failing_time(
    line, clock, notification_target
):
    for _ in range(4):
        away(line)
        alerting.evaluate(line.rt)
        clock.move(50)
        away(line, opened=False)
        alerting.evaluate(line.rt)
        clock.move(20)
    assert sent_messages(notification_target) == []
    away(line)
    alerting.evaluate(line.rt)
    ((title, _),) = sent_messages(notification_target)
    assert "receiver away" in title
    away(line, opened=False)
    alerting.evaluate(line.rt)
    clock.move(alerts.OVER_SECONDS + 1)
    alerting.evaluate(line.rt)
    assert len(sent_messages(notification_target)) == 1, "it may come back"
    clock.move(alerts.OVER_AFTER_RECOVERIES)
    alerting.evaluate(line.rt)
    title, text = sent_messages(notification_target)[1]
    assert title.endswith("resolved")
    assert "in 5 parts" in text


def test_a_notification_that_could_not_be_sent_before_its_alert_was_resolved_comes_late(
    line, clock, notification_target
):
    notification_target.script += [503, 503, 503, 503]
    away(line)
    alerting.evaluate(line.rt)
    for _ in range(4):
        clock.move(180)
        alerting.evaluate(line.rt)
    away(line, opened=False)
    alerting.evaluate(line.rt)
    assert len(notification_target.requests) == 4
    clock.move(alerts.OVER_SECONDS + 1)
    alerting.evaluate(line.rt)
    clock.move(600)
    alerting.evaluate(line.rt)
    ((title, text),) = sent_messages(notification_target)[4:]
    assert title.endswith("resolved")
    assert "It failed for 12 minutes" in text
    assert "This notification is late" in text


def test_what_one_answer_proves_is_notified_at_once(line, clock, notification_target):
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(line.rt)
    assert [title for title, _ in sent_messages(notification_target)] == ["CSI csi-vps-01: reload refused (config)"]


def test_a_problem_whose_first_failure_is_not_known_lasts_since_it_was_recorded(line, clock):
    reload_results.note(clock(), "config.yaml:3: unknown key")
    began = clock()
    assert [one.since for one in verdict(line.rt).problems] == [None]
    alerting.evaluate(line.rt)
    clock.move(20)
    write_heartbeat(line.rt, clock())
    assert [one.since for one in verdict(line.rt).problems] == [began]


def test_a_configured_delay_holds_for_every_problem(line, clock, notification_target):
    settings = line.rt.settings
    line.rt.settings = settings.model_copy(update={"notify": settings.notify.model_copy(update={"after_seconds": 60})})
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(line.rt)
    assert sent_messages(notification_target) == []
    clock.move(60)
    alerting.evaluate(line.rt)
    assert len(sent_messages(notification_target)) == 1


def test_an_incident_is_a_problem_until_it_is_acknowledged(line, clock, notification_target):
    for events in (3, 4):
        incidents.report(
            *("dead_letters", "channel A"),
            what="items were missed",
            effect="they are not delivered",
            remedy="set `YOUTUBE_API_KEY`",
            now=clock(),
            events=events,
        )
    alerting.evaluate(line.rt)
    ((_, text),) = sent_messages(notification_target)
    assert "7 events are affected" in text
    db.run("UPDATE alerts SET events = 1")
    assert "1 event is affected." in message(alerts.firing()[0], KINDS, None)[1]
    (one,) = incidents.unacknowledged()
    assert incidents.acknowledge(one.id, "cli", clock())
    assert not incidents.acknowledge(one.id, "cli", clock())
    assert firing(line.rt) == []


def test_an_alert_that_another_problem_explains_later_is_not_called_over(line, clock, notification_target):
    low, spent = CASES["quota_low"], CASES["quota_spent"]
    for moment in (low, spent, low):
        alerts.record(to_notify(judge(moment).problems), clock(), None)
        clock.move(60)
    assert [one.name for one in alerts.firing()] == ["quota_low"]
    alerts.record([], clock(), None)
    assert alerts.firing() == []


def test_few_units_and_then_none_are_over_with_one_message(line, clock):
    for moment in (CASES["quota_low"], CASES["quota_spent"], facts()):
        alerts.record(to_notify(judge(moment).problems), clock(), None, kinds=KINDS)
        clock.move(600)
        for alert in alerts.claim_unnotified(clock(), 60.0):
            alerts.mark_notified(alert, clock())
    told = {one.name: (one.notified_at is not None, one.resolved_notified_at) for one in alerts.latest(5)}
    assert told == {"quota_low": (True, clock() - 600), "quota_spent": (True, clock())}


def test_an_alert_that_another_problem_explains_before_its_delay_is_never_notified(line, clock):
    stale = CASES["source_stale"]
    silent = replace(stale, worker=CASES["worker_silent"].worker)
    for moment, name in ((stale, "source_stale"), (silent, "worker_silent")):
        alerts.record(to_notify(judge(moment).problems), NOW, None)
        assert [one.name for one in alerts.firing()] == [name]
    alerts.record([], NOW + 400, None)
    assert [one.name for one in alerts.claim_unnotified(NOW + 900, 60.0)] == ["worker_silent"]


def test_what_another_problem_explains_is_not_notified():
    silent = facts(31, oldest_pending=NOW - 1801)
    assert [one.id for one in judge(silent).problems] == ["worker_silent", "backlog_old"]
    assert [one.id for one in to_notify(judge(silent).problems)] == ["worker_silent"]
    assert [one.id for one in judge(silent).attention] == ["worker_silent"]
    assert [one.id for one in judge(silent).consequences] == ["backlog_old"]


def test_a_notification_links_to_the_dashboard_and_the_runbook_where_the_address_is_known(
    line, clock, notification_target
):
    away(line)
    alerting.evaluate(line.rt)
    (alert,) = alerts.firing()
    unlinked = message(alert, KINDS, None)[1]
    assert "http" not in unlinked.replace("http 503", "")
    assert unlinked.endswith("\nRunbook: csi docs runbook the-receiver-answers-503-or-not-at-all")
    text = message(alert, KINDS, "https://csi.example.org")[1]
    assert "https://csi.example.org/docs/runbook#the-receiver-answers-503-or-not-at-all" in text


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_each_kind_of_problem_has_a_section_in_the_runbook(kind):
    headings = re.findall(r"^## (.+)$", Path("ops/runbook.md").read_text(), re.M)
    anchors = [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert kind.runbook in anchors
    assert {*kind.explains, *kind.explains_own} <= set(KINDS)


def test_a_restart_does_not_repeat_it(line, clock, notification_target, tmp_path):
    away(line)
    alerting.evaluate(line.rt)
    clock.move(301)
    alerting.evaluate(line.rt)
    again = build(tmp_path, clock, notification_target)
    alerting.evaluate(again.rt)
    assert len(sent_messages(notification_target)) == 1
    away(again, opened=False)
    alerting.evaluate(again.rt)
    clock.move(alerts.OVER_SECONDS)
    alerting.evaluate(again.rt)
    assert len(sent_messages(notification_target)) == 2


def test_a_trouble_that_was_short_is_not_told(line, clock, notification_target):
    away(line)
    alerting.evaluate(line.rt)
    clock.move(179)
    away(line, opened=False)
    alerting.evaluate(line.rt)
    clock.move(901)
    alerting.evaluate(line.rt)
    assert sent_messages(notification_target) == []
    assert alerts.latest(5) == []


def test_what_could_not_be_sent_is_sent_later(line, clock, notification_target):
    notification_target.script += [503, 503]
    away(line)
    alerting.evaluate(line.rt)
    clock.move(301)
    alerting.evaluate(line.rt)
    tries = len(notification_target.requests)
    alerting.evaluate(line.rt)
    assert len(notification_target.requests) == tries, "not before its time"
    for _ in range(3):
        clock.move(alerting.HOLD_SECONDS + 1)
        alerting.evaluate(line.rt)
    assert len(notification_target.requests) == 3
    assert alerts.firing()[0].notified_at is not None


def test_nothing_is_sent_where_it_is_switched_off(line, clock, notification_target):
    settings = line.rt.settings
    line.rt.settings = settings.model_copy(update={"notify": settings.notify.model_copy(update={"enabled": False})})
    away(line)
    alerting.evaluate(line.rt)
    clock.move(301)
    assert [trouble.name for trouble in alerting.evaluate(line.rt)] == ["receiver_away"]
    assert sent_messages(notification_target) == []


def test_the_urls_are_in_no_row(line, clock, notification_target):
    notification_target.script.append(500)
    away(line)
    for _ in range(3):
        alerting.evaluate(line.rt)
        clock.move(301)
    dump = "\n".join(db.database.connection().iterdump())
    assert "receiver_away" in dump
    assert "token-of-the-target" not in dump


def test_a_url_that_is_none_is_refused_without_being_shown(tmp_path, clock, notification_target):
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    with db.connection():
        line = build(
            tmp_path, clock, notification_target, CSI_NOTIFY_URLS="json://127.0.0.1/ nosuchthing://canary-token"
        )
        with pytest.raises(ConfigError, match="number 2") as caught:
            alerting.check_targets(line.rt)
    assert "canary-token" not in str(caught.value)


def test_without_the_library_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"creator-signals\[notify\]"):
        notifications.check(["json://127.0.0.1/"])


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("json://a/ tgram://b/c", ["json://a/", "tgram://b/c"]),
        ("json://a/,json://b/?x=1,2\njson://c/", ["json://a/", "json://b/?x=1,2", "json://c/"]),
        ("  ", []),
    ],
    ids=["spaces", "commas and lines", "nothing"],
)
def test_several_urls_in_one_variable(text, urls):
    assert notifications.split_urls(text) == urls


@pytest.mark.parametrize(("status", "heard"), [(200, True), (404, False), (302, False)])
def test_the_heartbeat_url_is_asked_by_get(tmp_path, clock, status, heard):
    with db.connection(), static_page(status) as there:
        secrets = {"CSI_HEARTBEAT_URL": f"{there.url}/ping/canary"}
        assert alerting.ping(InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", secrets=secrets).rt) is heard
        assert there.targets == ["/ping/canary"]


def test_without_a_heartbeat_url_nobody_is_asked(tmp_path, clock):
    with db.connection():
        assert alerting.ping(InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/").rt) is True


@pytest.mark.parametrize("url", ["http://hc.example.net/canary", "ftp://127.0.0.1/canary", "https://u:p@hc.example/x"])
def test_a_heartbeat_url_must_be_safe_and_is_not_shown(tmp_path, clock, url):
    with pytest.raises(ConfigError, match="CSI_HEARTBEAT_URL") as caught:
        InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", secrets={"CSI_HEARTBEAT_URL": url})
    assert "canary" not in str(caught.value)
