"""The table of `test_trust.py`: each row is a fault in a running installation and what has to be said of it."""

import os
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.providers import HANG
from tests.fakes.scripted_receiver import Cut, ReceivedRequest, Reply, ScriptedReceiver, Slow, accept, json_reply
from tests.rigs.processes import free_port
from tests.rigs.processing_trust import ProcessingInstallation
from tests.rigs.small_disk import fill, free, remount, small_disk
from tests.rigs.trust import PROVEN, Injection, TrustInstallation

Box = TrustInstallation
TLS = Path(__file__).resolve().parents[1] / "data" / "tls"

# ── the receiver ────────────────────────────────────────────────────────────────────────────────────────


def accepts(box: Box) -> None:
    box.receiver.then = accept


def answers(behaviour: Any, items: int = 1) -> Any:
    """The receiver answers like this from now on, and new events go out to it."""

    def inject(box: Box) -> None:
        box.receiver.then = behaviour
        box.publish(items)

    return inject


def starts_with(status: int) -> Any:
    """The worker starts with a wrong address or secret, and there is nothing to send yet."""

    def inject(box: Box) -> None:
        box.receiver.then = status
        box.start_worker()
        box.wait_for(lambda: httpx.get(f"http://127.0.0.1:{box.port}/livez").status_code == 200)

    return inject


UNKNOWN_NAME = "https://receiver.invalid/api/v1/signals/ingest"


def refuse_each(request: ReceivedRequest) -> Reply:
    """207: the request is fine, and every event of it is refused."""
    errors = [{"index": index, "error": "invalid_schema"} for index in range(len(request.events))]
    if not errors:
        return accept(request)
    return json_reply(207, {"ok": False, "accepted": 0, "rejected": len(errors), "errors": errors})


class RefusesMost:
    """207: of the events that it sees, all but each fourth are refused."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __call__(self, request: ReceivedRequest) -> Reply:
        numbers = [self.seen.setdefault(event["event_id"], len(self.seen)) for event in request.events]
        errors = [
            {"index": index, "error": "invalid_schema"} for index, number in enumerate(numbers) if number % 4 != 3
        ]
        if not errors:
            return accept(request)
        body = {"ok": False, "accepted": len(numbers) - len(errors), "rejected": len(errors), "errors": errors}
        return json_reply(207, body)


def refuses_most(box: Box) -> None:
    answers(RefusesMost(), items=10)(box)


def clock_ten_minutes_ahead(request: ReceivedRequest) -> Reply:
    date = formatdate(time.time() + 600, usegmt=True)
    return json_reply(401, {"ok": False, "error": "stale_timestamp"}, date=date)


class Flapping:
    """Fails for 90 s, then answers for 25 s, and again; from its first request on."""

    def __init__(self) -> None:
        self.began: float | None = None

    def __call__(self, request: ReceivedRequest) -> Reply:
        self.began = self.began or request.at
        return json_reply(503) if (request.at - self.began) % 115 < 90 else accept(request)


def flaps(box: Box) -> None:
    """With new events all the time: a receiver that is not asked does not fail."""
    box.receiver.then = Flapping()
    box.publish_every(5.0)


def receiver_gone(box: Box) -> None:
    box.receiver.stop()
    box.publish()


def endpoint(url: str) -> Any:
    def inject(box: Box) -> None:
        box.reload(lambda config: config["delivery"].update(ua_endpoint=url))
        box.publish()

    return inject


def own_endpoint(box: Box) -> None:
    box.reload(lambda config: config["delivery"].update(ua_endpoint=box.receiver.url))


def speaks_tls(box: Box) -> None:
    """The receiver has a certificate that the worker trusts."""
    names = ("localhost", "other", "expired")
    bundle = box.home / "roots.pem"
    bundle.write_text("".join((TLS / f"{name}.pem").read_text() for name in names))
    make_short_certificate(box)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    box.certificate = context  # type: ignore[attr-defined]
    box.receiver = box.opened.enter_context(ScriptedReceiver(tls=context))
    box.receiver.url = box.receiver.url.replace("127.0.0.1", "localhost")
    box.extra_env = {**box.extra_env, "SSL_CERT_FILE": str(bundle)}
    box.change(lambda config: config["delivery"].update(ua_endpoint=box.receiver.url))


def make_short_certificate(box: Box) -> None:
    """A certificate for localhost with one day left, and the worker trusts it."""
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # A key of the kind that the other certificates have: a server may hold one certificate for each kind.
    # Its own subject: roots are looked up by it, and the other certificate for localhost is one of them.
    line += ["-days", "1", "-subj", "/CN=short", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(box.home / "short.key"), "-out", str(box.home / "short.pem")]
    subprocess.run([*line, *files], check=True, capture_output=True)
    with (box.home / "roots.pem").open("a") as bundle:
        bundle.write((box.home / "short.pem").read_text())


def certificate(name: str) -> Any:
    """New connections get this certificate; the open ones end."""

    def inject(box: Box) -> None:
        folder = box.home if name == "short" else TLS
        box.certificate.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")  # type: ignore[attr-defined]
        box.receiver.stop()
        box.receiver.start_again()
        box.publish()

    return inject


def slow_and_many(box: Box) -> None:
    """A receiver that takes four seconds for a request, and more events than it accepts in half an hour."""
    box.receiver.then = Reply(200, b'{"ok": true}', wire=Slow(4.0))
    for index in range(2000):
        box.yt.add(box.yt.playlists[0], f"Item {index}")


def good_certificate(box: Box) -> None:
    certificate("localhost")(box)


def receiver_back(box: Box) -> None:
    box.receiver.start_again()


def pause_destination(box: Box) -> None:
    done = box.csi("delivery", "pause", "--reason", "moving the receiver")
    assert done.returncode == 0, done.stderr
    box.publish()


def switch_delivery(to: bool) -> Any:
    def inject(box: Box) -> None:
        box.reload(lambda config: config.update(features={"delivery": to}))
        box.publish()

    return inject


# ── the sources ─────────────────────────────────────────────────────────────────────────────────────────


def fault(script: str) -> Any:
    return lambda box: box.yt.set_faults(script)


def no_fault(box: Box) -> None:
    box.yt.set_faults("")


def channel_gone_for_hours(box: Box) -> None:
    """One channel answers 404, and has done so for two hours."""
    box.yt.set_faults(f"feed/{box.yt.channels[0]}:404")
    box.wait_for(lambda: box.rows("SELECT 1 FROM watches WHERE errors > 0"))
    earlier = "UPDATE watches SET health_since = health_since - 7200, errors = 30 WHERE errors > 0"
    box.execute(earlier)


def channel_back(box: Box) -> None:
    """It answers again, and its hour until the next read is over."""
    box.yt.set_faults("")
    box.execute("UPDATE watches SET next_poll_at = ?1, wake_at = ?1", time.time())


def private_playlist(box: Box) -> None:
    box.yt.set_faults(f"playlistItems/{box.yt.playlists[0]}:playlistItemsNotAccessible")


def most_channels_gone(box: Box) -> None:
    box.yt.set_faults(",".join(f"feed/{ref}:404" for ref in box.yt.channels[1:]))


def overrun(box: Box) -> None:
    """More items than the feed's 15 entries while it could not be read."""
    box.yt.set_faults("feed:503")
    time.sleep(5)
    for index in range(40):
        box.yt.upload(box.yt.channels[0], f"Item {index}")
    box.yt.set_faults("")


def dead_proxy(box: Box) -> None:
    """The sources are behind an address where nothing listens any more."""
    dead = f"http://127.0.0.1:{free_port()}/feed?c={{channel_id}}"
    box.reload(lambda config: config["sources"]["youtube_channel_rss"].update(feed_url_template=dead))


def own_feeds(box: Box) -> None:
    template = box.yt.feed_url_template
    box.reload(lambda config: config["sources"]["youtube_channel_rss"].update(feed_url_template=template))


# ── worker and configuration ────────────────────────────────────────────────────────────────────────────


def kill_worker(box: Box) -> None:
    box.end_worker(signal.SIGKILL)


def start_worker(box: Box) -> None:
    box.start_worker()


def stop_worker(box: Box) -> None:
    box.worker.send_signal(signal.SIGSTOP)


def continue_worker(box: Box) -> None:
    box.worker.send_signal(signal.SIGCONT)


def doomed(point: str) -> Any:
    """A worker with this fault takes the place of the healthy one."""

    def inject(box: Box) -> None:
        box.end_worker(signal.SIGTERM)
        box.worker = box.start_doomed(point)

    return inject


def replace_worker(box: Box) -> None:
    box.end_worker(signal.SIGKILL)
    box.start_worker()


def broken_yaml(box: Box) -> None:
    keep_config(box)
    box.write_config((box.home / "config.yaml").read_text() + "\n  sources: [")


def unknown_key(box: Box) -> None:
    keep_config(box)
    box.reload(lambda config: config["csi"].update(state_dirr="x"))


def missing_variable(box: Box) -> None:
    keep_config(box)
    box.reload(lambda config: config["delivery"].update(bearer_token="${CSI_NO_SUCH_TOKEN:?}"))


def keep_config(box: Box) -> None:
    shutil.copy(box.home / "config.yaml", box.home / "config.good")


def good_config(box: Box) -> None:
    box.write_config((box.home / "config.good").read_text())


def remove_watches(number: int) -> Any:
    def inject(box: Box) -> None:
        keep_config(box)
        box.reload(lambda config: config["sources"]["youtube_channel_rss"]["watchlist"].__delitem__(slice(0, number)))

    return inject


def remove_watches_by_restart(box: Box) -> None:
    keep_config(box)
    box.end_worker(signal.SIGTERM)
    box.change(lambda config: config["sources"]["youtube_channel_rss"]["watchlist"].__delitem__(slice(0, 4)))
    box.start_worker()


def refused_reload_while_target_fails(behaviour: Reply, seconds: float) -> Any:
    def inject(box: Box) -> None:
        box.fail_target(behaviour, seconds)
        broken_yaml(box)

    return inject


def target_back(box: Box) -> None:
    box.fail_target(json_reply(200), 0.0)
    good_config(box)


def own_clock(box: Box) -> None:
    """Worker and sidecar read their clock through a file."""
    (box.home / "shift").write_text("0")
    module = [sys.executable, "-m", "tests.fakes.shifted_clock", str(box.home / "shift")]
    huey = [
        "huey.bin.huey_consumer",
        "huey_config.huey",
        "-w",
        "4",
        "-k",
        "thread",
        "-s",
        "1",
        "-g",
        "TERM",
        "-t",
        "25",
    ]
    box.start_worker = lambda *line: setattr(box, "worker", box.start(*module, *huey))  # type: ignore[method-assign]
    box.start_sidecar = lambda: setattr(box, "sidecar", box.start(*module, "csi.main"))  # type: ignore[method-assign]


def shift_clock(seconds: float) -> Any:
    return lambda box: (box.home / "shift").write_text(str(seconds))


def hourly_channel(box: Box) -> None:
    """A channel with an item every hour, and processes whose clock a test moves on."""
    own_clock(box)
    api = box.yt.api_base_url
    box.change(lambda config: config["sources"]["youtube_channel_rss"].update(api_base_url=api))
    now = time.time()
    for hours in range(12, 0, -1):
        box.yt.upload(box.yt.channels[0], f"Item of {hours} hours ago", at=now - 3600 * hours)


def two_days_pass(box: Box) -> None:
    """Without news: every read of the feed is good."""
    (box.home / "shift").write_text(f"{2 * 86_400} passed")


def feed_stays_as_it_is(box: Box) -> None:
    """The feed has the same bytes for two days, although the channel goes on."""
    box.yt.set_faults("feed:stale")
    box.yt.upload(box.yt.channels[0], "Only the API lists this")
    two_days_pass(box)


def fresh_feed(box: Box) -> None:
    box.yt.set_faults("")
    box.publish()


# ── storage ─────────────────────────────────────────────────────────────────────────────────────────────

HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute(sys.argv[2])
time.sleep(3600)
"""


def hold_lock(name: str, statement: str = "BEGIN IMMEDIATE") -> Any:
    def inject(box: Box) -> None:
        box.holder = box.start(sys.executable, "-c", HOLD, str(box.state / name), statement)  # type: ignore[attr-defined]
        box.publish()

    return inject


def release_lock(box: Box) -> None:
    box.holder.kill()  # type: ignore[attr-defined]
    box.holder.wait()  # type: ignore[attr-defined]


def on_small_disk(box: Box) -> None:
    """The state directory is a file system of its own, of 24 MB, of which 2 MB are to stay free."""
    box.opened.enter_context(small_disk(box.state, "24m"))
    box.change(lambda config: config["csi"].update(min_free_mb=2))


def fill_disk(box: Box) -> None:
    fill(box.state)
    box.publish()


def nearly_fill_disk(box: Box) -> None:
    (box.state / "ballast").write_bytes(b"x" * (free(box.state) - 1_500_000))
    box.publish()


def free_disk(box: Box) -> None:
    (box.state / "ballast").unlink()


def read_only_disk(box: Box) -> None:
    """As after an error of the disk: the kernel remounts it read-only, and the worker's next start fails."""
    box.end_worker(signal.SIGTERM)
    box.wait_for(lambda: remount(box.state, "ro"))
    box.start_worker()


def writable_disk(box: Box) -> None:
    assert remount(box.state, "rw")
    box.start_worker()


def damage_database(box: Box) -> None:
    """Overwrite pages in the middle of the file, as a failing disk does."""
    box.end_worker(signal.SIGKILL)
    connection = sqlite3.connect(box.state / "csi.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(box.state / "csi.db", box.home / "good.db")
    size = (box.state / "csi.db").stat().st_size
    with (box.state / "csi.db").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 8192))
    box.start_worker()


def repair_database(box: Box) -> None:
    for name in ("csi.db", "csi.db-wal", "csi.db-shm"):
        (box.state / name).unlink(missing_ok=True)
    shutil.copy(box.home / "good.db", box.state / "csi.db")
    box.end_worker(signal.SIGKILL)
    box.start_worker()


def fail_backup(box: Box) -> None:
    (box.home / "backups").write_text("a file where the directory should be")
    assert box.csi("db", "backup", str(box.home / "backups" / "csi.db")).returncode != 0


def make_backup(box: Box) -> None:
    assert box.csi("db", "backup", str(box.home / "new.db")).returncode == 0


def old_backup(box: Box) -> None:
    """The last backup was made two days ago."""
    assert box.csi("db", "backup", str(box.home / "old.db")).returncode == 0
    box.execute("UPDATE backups SET at = at - 172800")


# ── processing ──────────────────────────────────────────────────────────────────────────────────────────


def model_answers(status: int, videos: int = 1) -> Any:
    def inject(box: Any) -> None:
        box.chat.always["/chat/completions"] = status
        box.chat.always["/models"] = status
        box.publish(videos)

    return inject


def model_recovers(box: Any) -> None:
    box.chat.always.clear()
    box.publish()


def no_signals_database(box: Any) -> None:
    (box.home / "receiver.db").rename(box.home / "receiver.away")


def signals_database(box: Any) -> None:
    (box.home / "receiver.away").rename(box.home / "receiver.db")


def with_small_budget(box: Any) -> None:
    """Enough for two or three videos; without the early warning, which would be a second message."""
    box.write_processing(budget={"daily_usd": "0.0018", "alert_at": 1.0})


def spend_budget(box: Any) -> None:
    box.publish(6)


def raise_budget(box: Any) -> None:
    """As the message says: in the file, then a restart."""
    file = box.home / "processing.yaml"
    file.write_text(file.read_text().replace("0.0018", "5"))
    box.end_worker(signal.SIGTERM)
    box.start_worker()


def model_hangs(box: Any) -> None:
    box.chat.always["/chat/completions"] = HANG
    box.publish()


FIVE_CHANNELS: dict[str, Any] = {"channels": 5, "playlists": 0}
NO_KEY = {"YOUTUBE_API_KEY": ""}


def receiver(name: str, inject: Any, cause: str, **more: Any) -> Injection:
    """The receiver fails, and `/readyz` with it, until it accepts events again."""
    return Injection(name, "receiver_away", inject, cause, **{"heal": accepts, "readyz": True} | more)


def proven(name: str, inject: Any, cause: str, **more: Any) -> Injection:
    """One answer of the receiver proves it."""
    return receiver(name, inject, cause, **{"limit": PROVEN} | more)


def feeds(name: str, inject: Any, cause: str, **more: Any) -> Injection:
    """All feeds of a host fail."""
    given = {"problem": "host_outage", "heal": no_fault} | FIVE_CHANNELS
    return Injection(name, inject=inject, cause=cause, **given | more)


def at_once(name: str, problem: str, inject: Any, cause: str, **more: Any) -> Injection:
    """One answer, or one act of the operator, proves it."""
    return Injection(name, problem, inject, cause, limit=PROVEN, **more)


def worker(name: str, inject: Any, cause: str, heal: Any) -> Injection:
    return Injection(name, "worker_silent", inject, cause, heal=heal, readyz=True, livez=True)


def processing(name: str, problem: str, inject: Any, cause: str, **more: Any) -> Injection:
    given = {"build": ProcessingInstallation, "prepare": ProcessingInstallation.write_processing, "readyz": True}
    return Injection(name, problem, inject, cause, **given | more)


RECEIVER = (
    proven("receiver_401", answers(401), "401", quick=True),
    proven("receiver_403", answers(403), "403"),
    proven("receiver_404", answers(404), "404", quick=True),
    proven("receiver_410", answers(410), "410"),
    proven("receiver_redirects", answers((302, {}, {"location": "/login"})), "302"),
    proven(
        "certificate_expired", certificate("expired"), "expired", heal=good_certificate, prepare=speaks_tls, quick=True
    ),
    proven(
        "certificate_of_another_host", certificate("other"), "certificate", heal=good_certificate, prepare=speaks_tls
    ),
    proven("wrong_path_from_the_start", starts_with(404), "404", starts_healthy=False, quick=True),
    proven("wrong_secret_from_the_start", starts_with(401), "401", starts_healthy=False),
    proven("receiver_clock_differs", answers(clock_ten_minutes_ahead), "clock", quick=True),
    proven("receiver_refuses_by_207", answers(refuse_each, items=8), "refuse", quick=True),
    proven("receiver_400_for_all", answers(400, items=8), "400"),
    receiver("receiver_refuses_connections", receiver_gone, "connection refused", heal=receiver_back),
    receiver("receiver_503", answers(503), "503"),
    receiver("receiver_500", answers(500), "500"),
    receiver("receiver_never_answers", answers(Reply(wire=Slow(30.0))), "no answer|timed out|timeout"),
    receiver("receiver_resets", answers(Reply(wire=Cut())), "reset|closed the connection"),
    receiver("receiver_name_unknown", endpoint(UNKNOWN_NAME), "resolve|name", heal=own_endpoint),
    receiver("receiver_flaps", flaps, "503", ends_soon=False),
    receiver("receiver_answers_html", answers(Reply(200, b"<html>Welcome to the hotel</html>")), "JSON|answer"),
    receiver("receiver_429_for_long", answers(json_reply(429, retry_after="45")), "429|rate", readyz=False),
)
DELIVERY = (
    at_once(
        "certificate_ends_tomorrow",
        "certificate_expiring",
        certificate("short"),
        "day",
        heal=good_certificate,
        prepare=speaks_tls,
    ),
    Injection(
        "most_events_refused",
        "dead_letters",
        refuses_most,
        "dead letters",
        heal=accepts,
        remedy="csi dlq replay",
    ),
    Injection(
        "receiver_confirms_no_counts",
        "",
        answers(json_reply(200, {"ok": True})),
        "",
        doctor="does not confirm counts",
        notifies=False,
        heals=False,
    ),
    Injection("receiver_too_slow", "backlog_growing", slow_and_many, "backlog|drain", heal=accepts),
    Injection("delivery_switched_off", "delivery_off", switch_delivery(False), "delivery", heal=switch_delivery(True)),
    Injection(
        "destination_paused",
        "destination_paused",
        pause_destination,
        "paused",
        remedy="csi delivery resume",
        readyz=True,
    ),
)
SOURCES = (
    at_once(
        "api_key_invalid",
        "api_refused",
        fault("api:API_KEY_INVALID"),
        "not valid",
        heal=no_fault,
        readyz=True,
        quick=True,
    ),
    at_once(
        "api_switched_off",
        "api_refused",
        fault("api:accessNotConfigured"),
        "not enabled",
        heal=no_fault,
        readyz=True,
    ),
    at_once(
        "api_key_restricted",
        "api_refused",
        fault("api:ipRefererBlocked"),
        "address|restriction",
        heal=no_fault,
        readyz=True,
    ),
    at_once(
        "api_quota_spent", "quota_spent", fault("api:quotaExceeded"), "quota", readyz=True, heals=False, quick=True
    ),
    at_once(
        "items_missed",
        "items_missed",
        overrun,
        "missed|lost",
        remedy="csi problems ack",
        env=NO_KEY,
        playlists=0,
        quick=True,
    ),
    feeds("feeds_404", fault("feed:404"), "404"),
    feeds("feeds_503", fault("feed:503"), "503", problem="source_stale", readyz=True),
    feeds("feeds_hang", fault("feed:hang"), "no complete response"),
    feeds("feeds_without_entries", fault("feed:noentries"), "no items"),
    feeds("feeds_are_a_consent_page", fault("feed:html"), "HTML|not a feed"),
    feeds("feeds_429", fault("feed:429=45"), "429", problem="source_stale", readyz=True),
    feeds("feeds_refuse_connections", dead_proxy, "refused", heal=own_feeds),
    feeds("most_channels_gone", most_channels_gone, "404", readyz=True),
    feeds("one_channel_gone", channel_gone_for_hours, "404", problem="watch_gone", heal=channel_back),
    Injection(
        "feed_without_news",
        "watch_quiet",
        two_days_pass,
        "",
        heal=fresh_feed,
        prepare=hourly_channel,
        playlists=0,
        doctor="had no news for longer than usual",
        notifies=False,
    ),
    Injection(
        "feed_is_stale",
        "feed_stale",
        feed_stays_as_it_is,
        "the API lists",
        heal=fresh_feed,
        prepare=hourly_channel,
        playlists=0,
    ),
    at_once("playlist_private", "watch_denied", private_playlist, "private|not readable", heal=no_fault, playlists=2),
)
WORKER = (
    worker("worker_killed", kill_worker, "heartbeat", start_worker),
    worker("worker_stopped", stop_worker, "heartbeat", continue_worker),
    worker("scheduler_dies", doomed("scheduler-dies"), "scheduler|heartbeat", replace_worker),
    Injection(
        "polls_hang",
        "worker_silent",
        doomed("polls-hang"),
        "overdue|hang",
        heal=replace_worker,
        livez=True,
        **FIVE_CHANNELS,
    ),
    Injection(
        "clock_jumps",
        "clock_held",
        shift_clock(86_400.0),
        "clock",
        heal=shift_clock(0.0),
        readyz=True,
        notifies=False,
        prepare=own_clock,
    ),
    at_once("reload_broken_yaml", "reload_refused", broken_yaml, "config.yaml", heal=good_config, quick=True),
    at_once("reload_unknown_key", "reload_refused", unknown_key, "state_dirr", heal=good_config),
    at_once("reload_missing_variable", "reload_refused", missing_variable, "CSI_NO_SUCH_TOKEN", heal=good_config),
    at_once(
        "reload_removes_most_watches",
        "removal_held",
        remove_watches(4),
        "4",
        remedy="csi config accept",
        quick=True,
        **FIVE_CHANNELS,
    ),
    at_once(
        "reload_removes_one_watch",
        "watches_removed",
        remove_watches(1),
        "1",
        remedy="csi problems ack",
        **FIVE_CHANNELS,
    ),
    at_once(
        "start_removes_most_watches",
        "removal_held",
        remove_watches_by_restart,
        "4",
        remedy="csi config accept",
        **FIVE_CHANNELS,
    ),
)
STORAGE = (
    Injection("database_locked", "storage", hold_lock("csi.db"), "lock", heal=release_lock, readyz=True),
    Injection("disk_full", "storage", fill_disk, "full", heal=free_disk, readyz=True, prepare=on_small_disk),
    Injection(
        "disk_nearly_full", "storage", nearly_fill_disk, "full", heal=free_disk, readyz=True, prepare=on_small_disk
    ),
    Injection(
        "disk_read_only",
        "storage",
        read_only_disk,
        "read-only|writing",
        heal=writable_disk,
        readyz=True,
        prepare=on_small_disk,
    ),
    Injection(
        "database_damaged", "storage", damage_database, "damaged|malformed|corrupt", heal=repair_database, readyz=True
    ),
    Injection(
        "queue_locked",
        "worker_silent",
        hold_lock("queue.db", "BEGIN EXCLUSIVE"),
        "queue",
        heal=release_lock,
        readyz=True,
    ),
    at_once("backup_fails", "backup_failed", fail_backup, "backup", heal=make_backup),
    at_once("backup_is_old", "backup_old", old_backup, "backup", remedy="csi db backup"),
)

NOTIFICATIONS = (
    Injection(
        "target_refuses_messages_for_a_minute",
        "reload_refused",
        refused_reload_while_target_fails(json_reply(500), 60.0),
        "YAML",
        heal=good_config,
    ),
    Injection(
        "target_refuses_messages",
        "notification_failed",
        refused_reload_while_target_fails(json_reply(500), 3600.0),
        "",
        heal=target_back,
        notifies=False,
    ),
    Injection(
        "target_never_answers",
        "notification_failed",
        refused_reload_while_target_fails(Reply(wire=Slow(3600.0)), 3600.0),
        "",
        heal=target_back,
        notifies=False,
    ),
    Injection(
        "no_target",
        "no_notification_target",
        TrustInstallation.publish,
        "",
        env={"CSI_NOTIFY_URLS": "", "CSI_HEARTBEAT_URL": ""},
        notifies=False,
        heals=False,
    ),
)

PROCESSING = (
    processing(
        "processing_worker_killed", "processing_silent", kill_worker, "heartbeat", heal=start_worker, livez=True
    ),
    processing(
        "model_401",
        "provider_refused",
        model_answers(401),
        "401",
        limit=PROVEN,
        heal=model_recovers,
        remedy="csi processing resume",
    ),
    processing(
        "model_402",
        "provider_refused",
        model_answers(402),
        "credit",
        limit=PROVEN,
        heal=model_recovers,
        remedy="csi processing resume",
    ),
    processing("model_503", "provider_failing", model_answers(503), "503", heal=model_recovers, readyz=False),
    processing(
        "budget_of_processing_spent",
        "budget_spent",
        spend_budget,
        "budget",
        limit=PROVEN,
        heal=raise_budget,
        prepare=with_small_budget,
        readyz=False,
    ),
    processing("model_never_answers", "provider_failing", model_hangs, "response", heal=model_recovers, readyz=False),
    processing("receiver_database_gone", "intake_blocked", no_signals_database, "not exist", heal=signals_database),
)

TABLE = tuple(
    replace(row, number=number)
    for number, row in enumerate(RECEIVER + DELIVERY + SOURCES + WORKER + STORAGE + NOTIFICATIONS + PROCESSING, 1)
)
