"""The user journeys of PRD §3.2 and §3.3 from the creator's action to their last step, with real processes.

Worker, sidecar, receiver and the worker of processing run as an operator starts them; YouTube, the model and the chat
service of the notifications are stand-ins on loopback. All processes read the same clock, which the tests move.
"""

import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from csi.receiver.app import INGEST_PATH
from ops.screenshot import BROWSER, DRIVER, browser
from tests.fakes.providers import FakeChat
from tests.fakes.raw_server import RawRequest, RawServer, Script, Send, answer
from tests.fakes.scripted_receiver import SECRET
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube
from tests.rigs.processes import Installation, free_port

pytestmark = pytest.mark.slow
CONSUMER = ("-w", "4", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25")
PASSWORD = "dashboard-password-1"
TOKEN = "canary-admin-token-0123"
DAY = 86_400.0
NOON = 43_200.0
PATIENCE = 120.0
"""Seconds for a step that takes one or two: the machine may be busy."""


class Neighbourhood:
    """An installation with its receiver and processing, and what their people see."""

    def __init__(self, home: Path, yt: SimulatedYouTube, messages: list[dict[str, Any]], env: dict[str, str]) -> None:
        self.home, self.yt, self.messages, self.env = home, yt, messages, env
        self.shift = home / "shift"
        self.passed = 0.0
        port, sidecar = free_port(), free_port()
        self.url, self.sidecar = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{sidecar}"
        self.box = Installation(home, yt, self.url + INGEST_PATH, web={"port": sidecar}, **journeys(yt))
        # Noon, so that no day ends before a test ends it.
        self.first_shift = NOON - time.time() % DAY
        self._write_shift()
        (home / "processing.yaml").write_text(yaml.safe_dump(processing(home, yt, env["CHAT_URL"])))

    def start(self) -> None:
        receiver = ("receiver", "--port", self.url.rpartition(":")[2], "--db", str(self.home / "receiver.db"))
        self._run("csi.cli.main", *receiver, f"--processing={self.home / 'processing.yaml'}")
        self.wait_for(lambda: answers(f"{self.url}/healthz"))
        self._run("huey.bin.huey_consumer", "tasks.processing.huey", *CONSUMER)
        self._run("huey.bin.huey_consumer", "huey_config.huey", *CONSUMER)
        self._run("csi.main")
        self.wait_for(lambda: answers(f"{self.sidecar}/readyz") and answers(f"{self.url}/processing/readyz"))

    def _run(self, *module: str) -> None:
        self.box.start(sys.executable, "-m", "tests.fakes.shifted_clock", str(self.shift), *module, **self.env)

    def now(self) -> float:
        return time.time() + self.first_shift + self.passed

    def pass_time(self, seconds: float) -> None:
        """So much time goes by for every process."""
        self.passed += seconds
        self._write_shift()

    def _write_shift(self) -> None:
        draft = self.home / "shift.new"
        draft.write_text(f"{self.first_shift + self.passed} passed")
        draft.replace(self.shift)

    def wait_for(self, condition: Callable[[], object]) -> None:
        self.box.wait_for(condition, PATIENCE)

    def summarized(self, *video_ids: str) -> bool:
        found = self.page("/ui/videos?status=summarized")
        return all(f"/ui/videos/{one}" in found for one in video_ids)

    def page(self, path: str) -> str:
        found = httpx.get(self.url + path, auth=("any", PASSWORD), timeout=30)
        assert found.status_code == 200, found.text
        return found.text

    def admin(self, path: str) -> Any:
        found = httpx.get(self.sidecar + path, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
        assert found.status_code == 200, found.text
        return found.json()

    def messages_about(self, words: str) -> list[dict[str, Any]]:
        return [one for one in self.messages if words in one["title"] + one["message"]]


def journeys(yt: SimulatedYouTube) -> dict[str, Any]:
    """Two sources with the pipelines of the PRD; items that exist at the start are known and no news."""
    quick = {"poll_interval_seconds": 1, "first_poll": "mark_seen", "adaptive_polling": {"enabled": False}}
    return {
        "sources": {
            "youtube_playlist": {
                **quick,
                "api_base_url": yt.api_base_url,
                "quota_limit": 10_000_000,
                "playlists": [{"id": yt.playlists[0], "route_profile": "youtube_explainer"}],
            },
            "youtube_channel_rss": {
                "poll_interval_seconds": 1,
                "first_poll": "mark_seen",
                "feed_url_template": yt.feed_url_template,
                "watchlist": [{"channel_id": ref, "route_profile": "channel_watchlist"} for ref in yt.channels],
            },
        },
        "route_profiles": {
            "youtube_explainer": {"pipeline": "youtube_tutorial_explainer", "priority": "urgent", "tags": ["tutorial"]},
            "channel_watchlist": {"pipeline": "creator_watchlist_handler", "tags": ["watchlist"]},
        },
    }


def processing(home: Path, yt: SimulatedYouTube, chat_url: str) -> dict[str, Any]:
    """The PRD's two routes and its window of five minutes are the defaults."""
    return {
        "state_dir": str(home / "processing"),
        "receiver_db": str(home / "receiver.db"),
        "log_format": "json",
        "transcription": {"providers": ["captions"], "captions": {"base_url": yt.base_url}},
        "summarization": {"provider": "openai", "openai": {"base_url": f"{chat_url}/v1"}},
    }


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbourhood]:
    messages: list[dict[str, Any]] = []

    def take(request: RawRequest) -> Script:
        message = json.loads(request.body)
        # A clock that is moved makes the last heartbeat look old for a moment, which is a message to operators.
        if not message["title"].startswith("CSI processing: "):
            messages.append(message)
        return [Send(answer(200, b"{}"))]

    home = tmp_path_factory.mktemp("journeys")
    clock: list[Neighbourhood] = []
    now = lambda: clock[0].now() if clock else time.time() - DAY  # noqa: E731
    with (
        FakeChat() as chat,
        RawServer(take) as target,
        simulated_youtube(channels=2, playlists=1, videos=1, now=now) as yt,
    ):
        env = {
            "CHAT_URL": chat.url,
            "OPENAI_API_KEY": "openai-key-1",
            "UA_SIGNALS_INGEST_SHARED_SECRET": SECRET,
            "UA_SIGNALS_DASHBOARD_PASSWORD": PASSWORD,
            "CSI_PROCESSING_CONFIG": str(home / "processing.yaml"),
            "CSI_ADMIN_TOKEN": TOKEN,
            # As a Telegram channel or any other service of apprise; the ingester sends no messages of its own here.
            "CSI_NOTIFY_URLS": target.url.replace("http", "json", 1),
        }
        found = Neighbourhood(home, yt, messages, env)
        clock.append(found)
        try:
            found.start()
            # The items of the first poll are stored: what is published from now on is news.
            found.wait_for(lambda: found.box.rows("SELECT count(*) FROM watches WHERE first_read_at > 0") == [(3,)])
            yield found
        finally:
            found.box.end()


def test_a_channel_upload_ends_in_one_collected_message_and_in_the_list_of_videos(city: Neighbourhood) -> None:
    """PRD §3.3."""
    one, two = city.yt.channels
    uploads = {
        city.yt.upload(one, "Small language models"): "Small language models",
        city.yt.upload(two, "A night in the mountains"): "A night in the mountains",
        city.yt.upload(two, "Small kitchens"): "Small kitchens",
    }
    city.wait_for(lambda: city.summarized(*uploads))
    for name, title in uploads.items():
        assert "One." in city.page(f"/ui/videos/{name}"), title

    # Collected: nothing is sent within the window, then one message with all of them, and never another.
    assert city.messages == []
    city.pass_time(240)
    city.wait_for(lambda: heartbeat_since(city, city.now() - 30))
    assert city.messages == []
    city.pass_time(70)
    city.wait_for(lambda: city.messages)
    (message,) = city.messages
    assert message["title"] == "CSI: 3 items"
    for name, title in uploads.items():
        assert title in message["message"]
        assert f"https://www.youtube.com/watch?v={name}" in message["message"]

    # The list of videos, filtered.
    assert listed(city.page("/ui/videos?q=small&status=summarized")) == {
        name for name, title in uploads.items() if "Small" in title
    }
    assert listed(city.page(f"/ui/videos?channel={two}")) == {*list(uploads)[1:]}
    assert listed(city.page("/ui/videos?pipeline=creator_watchlist_handler&since=24h")) == {*uploads}
    assert listed(city.page("/ui/videos?status=failed")) == set()

    # The ingester's own view of the same items: each event accepted once.
    events = city.admin("/admin/events?source=youtube_channel_rss")["events"]
    assert sorted(event["subject"]["title"] for event in events if event["state"] == "delivered") == sorted(
        uploads.values()
    )


def test_the_list_of_videos_is_filtered_in_a_browser(city: Neighbourhood, driver: webdriver.Chrome) -> None:
    name = city.yt.upload(city.yt.channels[0], "Browsers in a browser")
    city.wait_for(lambda: city.summarized(name))
    driver.get(city.url.replace("://", f"://any:{PASSWORD}@") + "/ui")
    driver.get(city.url + "/ui/videos")
    driver.find_element(By.NAME, "q").send_keys("browsers")
    Select(driver.find_element(By.NAME, "status")).select_by_value("summarized")
    driver.find_element(By.CSS_SELECTOR, "form.filter button").click()
    WebDriverWait(driver, 60).until(lambda page: "q=browsers" in page.current_url)
    links = driver.find_elements(By.CSS_SELECTOR, "#videos a.name")
    assert [link.text for link in links] == ["Browsers in a browser"]
    links[0].click()
    WebDriverWait(driver, 60).until(lambda page: page.current_url.endswith(f"/ui/videos/{name}"))
    assert "One." in driver.find_element(By.ID, "main").text
    assert [line["message"] for line in driver.get_log("browser")] == []


def test_a_video_in_the_playlist_ends_in_documents_and_in_the_daily_report(city: Neighbourhood) -> None:
    """PRD §3.2."""
    name = city.yt.add(city.yt.playlists[0], "Write a compiler in a day")
    city.wait_for(lambda: city.summarized(name))
    folder = city.home / "processing" / "artifacts" / name
    for document in ("CONCEPT.md", "IMPLEMENTATION.md", "summary.md", "transcript.md"):
        assert (folder / document).read_text().strip(), document
    page = city.page(f"/ui/videos/{name}")
    assert "Concept" in page
    assert "Implementation" in page
    assert "Write a compiler in a day" in (folder / "transcript.md").read_text()

    # The report of the day is written and sent when the day is over.
    reports = city.home / "processing" / "artifacts" / "digests"
    assert not list(reports.glob("*"))
    day = time.strftime("%Y-%m-%d", time.gmtime(city.now()))
    city.pass_time(DAY)
    city.wait_for(lambda: city.messages_about(f"CSI digest of {day}"))
    report = (reports / f"digest-{day}.md").read_text()
    assert "Write a compiler in a day" in report
    assert "youtube" in report
    assert (reports / f"digest-{day}.html").exists()
    (message,) = city.messages_about(f"CSI digest of {day}")
    assert "Write a compiler in a day" in message["message"]
    assert day in city.page("/ui/run")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    missing = [str(path) for path in (BROWSER, DRIVER) if not path.exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not there; enable with: apt-get install chromium chromium-driver")
    with browser(tmp_path / "profile") as found:
        yield found


def listed(page: str) -> set[str]:
    return set(re.findall(r'class="name" href="/ui/videos/([^"]+)"', page))


def heartbeat_since(city: Neighbourhood, moment: float) -> bool:
    """The worker of processing has seen this time: what was due is done or under way."""
    path = city.home / "processing" / "processing.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        ((at,),) = connection.execute("SELECT MAX(beat_at) FROM heartbeats").fetchall()
    return bool(at > moment)
