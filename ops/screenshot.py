"""Rewrites docs/img/*.png: pages of the dashboard over a made-up day, in a real browser. `python -m ops.screenshot`"""

import math
import random
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from csi import clock
from csi.dlq import dead_letters
from csi.ingester.event import CreatorSignalEvent
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime, open_runtime
from csi.store import api_units, attempts, batches, counters, db, destinations, events, heartbeats, outbox, watches
from csi.store.models import Watch
from csi.web.app import create_app

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
SHOWN = {"dashboard.png": "/", "sources.png": "/sources", "event.png": "/events/1", "dead-letters.png": "/dead-letters"}
TOKEN, READ_TOKEN = "show-admin-token-0123", "show-reader-token-0123"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
HOUR = 3600.0

LISTS = ("Rust from scratch", "Papers, read aloud", "Kitchen chemistry", "City cycling")
CHANNELS = ("Small Engines", "The Night Sky", "Quiet Maths", "Bread & Salt", "Field Recordings", "Old Maps", "Loom")
TITLES = (
    "Why ownership is not a fight", "A lens made of gravity", "Sourdough at 4 °C", "Three proofs of one theorem",
    "Repairing a 1962 carburettor", "The river that moved the border", "Dawn chorus, 40 minutes", "Weaving a twill",
    "Warum der Himmel nachts dunkel ist", "週末のパン", "Reading a paper in 12 minutes", "Hills without sweat",
)  # fmt: skip


def configuration(home: Path, endpoint: str = "http://127.0.0.1:9/api/v1/signals/ingest") -> Path:
    """Four playlists and seven channels; nothing is ever contacted but loopback."""
    path = home / "config.yaml"
    blocks: dict[str, Any] = {
        "csi": {"instance_id": "csi-vps-01", "state_dir": str(home / "state"), "log_level": "ERROR"},
        "sources": {
            "youtube_playlist": {
                "api_base_url": "http://127.0.0.1:9/youtube/v3",
                "playlists": [{"id": f"PL{number:032d}", "name": name} for number, name in enumerate(LISTS)],
            },
            "youtube_channel_rss": {
                "feed_url_template": "http://127.0.0.1:9/feed?channel_id={channel_id}",
                "watchlist": [{"channel_id": f"UC{number:022d}", "name": name} for number, name in enumerate(CHANNELS)],
            },
        },
        "delivery": {"ua_endpoint": endpoint},
    }
    path.write_text(yaml.safe_dump(blocks))
    return path


def open_show(home: Path, **changes: str) -> Runtime:
    env = {
        "CSI_UA_SHARED_SECRET": "show-shared-secret-0123",
        "CSI_ADMIN_TOKEN": TOKEN,
        "CSI_ADMIN_READ_TOKEN": READ_TOKEN,
        "YOUTUBE_API_KEY": "show-api-key-0123",
    }
    return open_runtime(configuration(home), env | changes)


def furnish(rt: Runtime, *, events_a_day: int = 900) -> None:
    """A day of a healthy installation, with one sick source, one paused one and a few dead letters."""
    rng, now = random.Random(7), rt.now()
    with db.connection():
        sync_watches(rt)
        _nurse(now, rng)
        _deliver(now, rng, events_a_day)
        _leave_waiting(now)
        _bury(now)
        heartbeats.write("worker", now, now - 31 * HOUR, queued=3)
        destinations.change("default", last_success_at=now - 4, last_failure_at=now - 5 * HOUR, last_error="http 503")
        _spend(now, rng)


def _nurse(now: float, rng: random.Random) -> None:
    for watch in Watch.select():
        read = now - rng.uniform(1, 25)
        Watch.update(
            last_poll_at=read,
            last_success_at=read,
            first_read_at=now - 90 * HOUR,
            next_poll_at=now + rng.uniform(2, 200),
            last_new_at=now - rng.uniform(200, 20_000),
        ).where(Watch.id == watch.id).execute()
    sick = {"health": "backing_off", "errors": 2, "last_error": "the feed answered http 500 (2 times in a row)"}
    Watch.update(**sick, health_since=now - 70).where(Watch.name == "Old Maps").execute()
    Watch.update(state="paused").where(Watch.name == "Loom").execute()


def _deliver(now: float, rng: random.Random, count: int) -> None:
    """More by day than by night, as people are."""
    rows = watches.active()
    for number in range(count):
        age = rng.uniform(0, 24 * HOUR)
        if rng.random() > 0.55 + 0.45 * math.sin((now - age) / 86_400 * 2 * math.pi):
            continue
        watch = rng.choice(rows)
        tier = "urgent" if watch.source == "youtube_playlist" else "standard"
        seen = now - age - 20
        lag, wait = rng.uniform(3, 18) if tier == "urgent" else rng.uniform(40, 700), rng.uniform(0.2, 1.4)
        pk = add_event(watch, number, seen, tier, rng.choice(TITLES), lag)
        _send(pk, watch, tier, seen, seen + (wait if tier == "urgent" else wait + 25))


def add_event(watch: Watch, number: int, seen: float, tier: str, title: str, lag: float = 5.0) -> int:
    video = f"show{number:07d}"
    subject = {
        "platform": "youtube",
        "video_id": video,
        "title": title,
        "url": f"https://www.youtube.com/watch?v={video}",
    }
    event = CreatorSignalEvent(
        event_id=f"src:yt:show:{video}:{int(seen - lag)}",
        dedupe_key=f"youtube:video:{video}:{watch.ref}",
        source=watch.source,
        event_type="video_added_to_playlist" if tier == "urgent" else "channel_new_upload",
        occurred_at=clock.iso(seen - lag),
        received_at=clock.iso(seen),
        subject=subject,
        routing={"pipeline": "explainer", "priority": tier, "tags": ["watchlist"]},
    )
    pk = events.add(event, watch_id=watch.id, seq=number, tier=tier, first_seen_at=seen)
    assert pk is not None
    counters.add("events", source=watch.source, label="stored")
    return pk


def _send(pk: int, watch: Watch, tier: str, seen: float, arrived: float) -> None:
    outbox.put(pk, ["default"], tier=tier, watch_id=watch.id, seq=pk, due_at=seen)
    batch = open_batch([pk], tier, seen + 0.1)
    number = attempts.start(batch.id, "default", f"req_{pk:012x}", 1, "ascii", arrived - 0.1)
    attempts.finish(number, "delivered", arrived, status=200, answer='{"ok": true, "accepted": 1}')
    outbox.remove(batch.id, [pk])
    events.mark_delivered([pk], emitted_at=clock.iso(arrived), now=arrived)
    db.run("UPDATE batches SET state = 'delivered', attempts = 1, settled_at = ? WHERE id = ?", arrived, batch.id)
    counters.add("events", source=watch.source, label="delivered")


def open_batch(pks: list[int], tier: str, at: float) -> batches.Batch:
    entries = [
        outbox.Entry(*row)
        for row in db.fetch(f"SELECT id, event_pk, watch_id FROM outbox WHERE event_pk IN ({db.marks(pks)})", *pks)
    ]
    found = batches.find(batches.create(entries, destination="default", tier=tier, now=at))
    assert found is not None
    return found


def _leave_waiting(now: float) -> None:
    watch = Watch.get(Watch.name == "The Night Sky")
    for number in range(3):
        pk = add_event(watch, 5_000 + number, now - 9 + number, "standard", TITLES[number])
        outbox.put(pk, ["default"], tier="standard", watch_id=watch.id, seq=pk, due_at=now + 20)


def _bury(now: float) -> None:
    watch = Watch.get(Watch.name == "Rust from scratch")
    for number, (reason, cause, status) in enumerate(
        [("http 422: subject.title is too long", "event", 422)] * 2 + [("http 503 ua_overloaded", "transient", 503)] * 3
    ):
        bury(watch, 6_000 + number, now - 4 * HOUR - number * 300, TITLES[number], reason, cause, status)


def bury(watch: Watch, number: int, at: float, title: str, reason: str, cause: Any, status: int) -> int:
    """An event that died after three attempts; the number of its letter."""
    pk = add_event(watch, number, at - 90, "urgent", title)
    outbox.put(pk, ["default"], tier="urgent", watch_id=watch.id, seq=pk, due_at=at - 90)
    batch = open_batch([pk], "urgent", at - 89)
    for attempt, wait in enumerate((80, 60, 0), 1):
        row = attempts.start(batch.id, "default", f"req_{pk:06x}{attempt}", attempt, "ascii", at - wait - 0.3)
        attempts.finish(
            row, "transient" if cause == "transient" else "refused", at - wait, status=status, reason=reason
        )
    dead_letters.add_events(
        batch, outbox.contents(batch.id), cause=cause, reason=reason, status=status, attempts=3, now=at
    )
    db.run("UPDATE batches SET state = 'dead', attempts = 3, settled_at = ? WHERE id = ?", at, batch.id)
    return int(db.value("SELECT id FROM dead_letter ORDER BY id DESC"))


def _spend(now: float, rng: random.Random) -> None:
    for hour in range(int(api_units.day_starts(now) // HOUR), int(now // HOUR) + 1):
        api_units.book(rng.randrange(200, 290), 10_000, hour * HOUR + 1)


# ── the sidecar and a browser ───────────────────────────────────────────────────────────────────────────


@contextmanager
def served(rt: Runtime) -> Iterator[str]:
    """The sidecar in a thread of this process. Yields its address."""
    door = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(lambda: rt), ws="none", lifespan="on", access_log=False, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        door.close()


@contextmanager
def browser(profile: Path, *flags: str, size: str = "1280,1000") -> Iterator[webdriver.Chrome]:
    """A chromium of its own, which contacts loopback only."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={size}", rules, *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def sign_in(driver: webdriver.Chrome, url: str, token: str = TOKEN) -> None:
    driver.get(f"{url}/login")
    driver.find_element(By.NAME, "token").send_keys(token)
    driver.find_element(By.CSS_SELECTOR, "button.main").click()
    WebDriverWait(driver, 20, 0.05).until(lambda one: one.find_elements(By.ID, "nav"))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="csi-show-") as home:
        rt = open_show(Path(home), CSI_HEARTBEAT_URL="http://127.0.0.1:9/")  # without one a page says so
        furnish(rt)
        with served(rt) as url, browser(Path(home) / "profile", "--hide-scrollbars", size="1180,980") as driver:
            sign_in(driver, url)
            FOLDER.mkdir(exist_ok=True)
            for name, path in SHOWN.items():
                driver.get(f"{url}{path}")
                WebDriverWait(driver, 20, 0.05).until(lambda one: one.find_elements(By.ID, "nav"))
                driver.save_screenshot(str(FOLDER / name))
                sys.stderr.write(f"{name}: {(FOLDER / name).stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
