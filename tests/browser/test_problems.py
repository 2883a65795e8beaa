"""Problems in a real browser: as an operator reads and acknowledges them, on a phone, without JavaScript, and when the
sidecar's process is gone."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from csi.runtime import Runtime
from csi.store import db, destinations, heartbeats, incidents
from ops.screenshot import READ_TOKEN, TOKEN, browser, sign_in
from tests.browser.test_dashboard import BETWEEN_PAGES, CONTRAST, press, text_of, until, visit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def break_it(rt: Runtime) -> None:
    """The worker is gone, the receiver refuses, items were missed."""
    with db.connection():
        heartbeats.write("worker", rt.now() - 500, rt.now() - 900)
        destinations.change("default", circuit="open", reason="http 401", opened_at=rt.now() - 400)
        report_missed(rt)


def report_missed(rt: Runtime) -> None:
    incidents.report(
        *("dead_letters", "a channel"),
        what="36 items of a channel with a long name were missed",
        cause="its feed was away for 3 hours",
        effect="they are not delivered",
        remedy="set `YOUTUBE_API_KEY`, or run `csi sources add --option a-very-long-value-that-cannot-break`",
        now=rt.now() - 600,
        events=36,
    )


def headings(driver: webdriver.Chrome) -> list[str]:
    """Without numbers, which grow by the second."""
    return [re.sub(r"\d+", "N", one.text) for one in driver.find_elements(By.CSS_SELECTOR, "#problems h3")]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_is_copied_and_an_incident_is_acknowledged(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    with db.connection():
        report_missed(rt)
    admin_browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"origin": url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    visit(admin_browser, url)
    assert "Degraded: 1 problem needs attention." in text_of(admin_browser, "#headline")
    button = admin_browser.find_element(By.CSS_SELECTOR, "#problems button.copy")
    button.click()
    until(admin_browser, lambda driver: "Copied" in text_of(driver, "#problems"))
    assert admin_browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == "YOUTUBE_API_KEY"
    press(admin_browser, '#problems form[action$="/acknowledge"] button')
    until(admin_browser, lambda driver: "is acknowledged." in text_of(driver, ".note"))
    assert text_of(admin_browser, "#headline") == "No problems."


def test_the_links_of_a_problem_lead_to_the_runbook_and_to_what_is_affected(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    with db.connection():
        destinations.change("default", circuit="open", reason="http 401", opened_at=rt.now() - 400)
    visit(admin_browser, url)
    links = [
        one.get_attribute("href") for one in admin_browser.find_elements(By.CSS_SELECTOR, "#problems article .acts a")
    ]
    assert links[1:] == [f"{url}/#destinations"]
    press(admin_browser, "#problems article .acts a")
    until(admin_browser, lambda driver: text_of(driver, "h1") == "Runbook")
    assert admin_browser.find_element(By.CSS_SELECTOR, ":target").tag_name == "h2"
    assert admin_browser.get_log("browser") == []


def test_on_a_phone_problems_and_runbook_are_not_wider_than_the_screen(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    break_it(rt)
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 3, "mobile": True}
    admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for path in ("/", "/sources", "/docs/runbook", "/docs/operate", "/docs/cli"):
            visit(admin_browser, url + path)
            assert admin_browser.execute_script("return document.documentElement.scrollWidth") <= 390, path
    finally:
        admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_problems_and_runbook_can_be_read_by_day_and_by_night(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime, scheme: str
) -> None:
    break_it(rt)
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    try:
        for path in ("/", "/sources", "/docs/runbook#dead-letters"):
            visit(admin_browser, url + path)
            assert admin_browser.execute_script(CONTRAST) == [], path
    finally:
        admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_without_javascript_the_same_problems_are_shown(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime, tmp_path: Path
) -> None:
    break_it(rt)
    visit(admin_browser, url)
    expected = headings(admin_browser)
    assert len(expected) == 3
    with browser(tmp_path / "profile", "--blink-settings=scriptEnabled=false") as plain:
        sign_in(plain, url)
        assert headings(plain) == expected
        assert "Down: 3 problems need attention." in text_of(plain, "#headline")
        assert "Copy" not in text_of(plain, "#problems")
        press(plain, '#problems form[action$="/acknowledge"] button')
        until(plain, lambda driver: "is acknowledged." in text_of(driver, ".note"))
        assert len(headings(plain)) == 2


# ── the sidecar is gone ─────────────────────────────────────────────────────────────────────────────────


class SidecarProcess:
    """`python -m csi.main` over the files of `rt`, on one port, also when it is started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            self._port = int(door.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CSI_", "YOUTUBE_"))}
        ours = {
            "CSI_CONFIG_PATH": str(self._home / "config.yaml"),
            "CSI_UA_SHARED_SECRET": "show-shared-secret-0123",
            "CSI_ADMIN_TOKEN": TOKEN,
            "CSI_ADMIN_READ_TOKEN": READ_TOKEN,
            "YOUTUBE_API_KEY": "show-api-key-0123",
            "PORT": str(self._port),
        }
        self.process = subprocess.Popen([sys.executable, "-m", "csi.main"], env=kept | ours, cwd=ROOT)
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            assert self.process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", self._port), 0.1).close()
                return
            except OSError:
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def sidecar(rt: Runtime, tmp_path: Path) -> Iterator[SidecarProcess]:
    made = SidecarProcess(tmp_path)
    yield made
    made.kill()


def eventually(driver: webdriver.Chrome, condition: Callable[[webdriver.Chrome], object]) -> None:
    """The page looks every 5 s and waits for an answer up to 8 s."""
    WebDriverWait(driver, 30, 0.1, ignored_exceptions=BETWEEN_PAGES).until(condition)


LOOKS = """
const bar = document.getElementById("connection").getBoundingClientRect();
const style = (where, name) => getComputedStyle(document.querySelector(where))[name];
return {
  left: bar.left, top: bar.top, width: bar.width, screen: document.documentElement.clientWidth,
  wide: document.documentElement.scrollWidth,
  headline: style("main", "filter"), dot: style("#headline .dot", "backgroundColor"),
  covered: bar.height > document.querySelector("header").getBoundingClientRect().top,
};
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_sidecar_that_is_killed_is_reported_by_the_open_page_until_it_is_back(
    driver: webdriver.Chrome, sidecar: SidecarProcess, rt: Runtime, width: int
) -> None:
    driver.delete_all_cookies()
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        with db.connection():
            heartbeats.write("worker", rt.now(), rt.now() - 900)
        sign_in(driver, sidecar.url)
        healthy = driver.execute_script(LOOKS)
        assert (text_of(driver, "#headline"), healthy["headline"]) == ("No problems.", "none")
        sidecar.kill()
        eventually(driver, lambda there: "Connection lost since 20" in text_of(there, "#connection"))
        seen = driver.execute_script(LOOKS)
        assert (seen["left"], seen["top"], seen["width"]) == (0, 0, seen["screen"])
        assert seen["wide"] <= width
        assert not seen["covered"]
        assert "grayscale" in seen["headline"]
        assert seen["dot"] != healthy["dot"]
        with db.connection():
            report_missed(rt)
        sidecar.start()
        eventually(driver, lambda there: "were missed" in text_of(there, "#problems"))
        assert not driver.find_element(By.ID, "connection").is_displayed()
        assert driver.execute_script(LOOKS)["headline"] == "none"
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_sidecar_that_hangs_is_reported_also_while_the_operator_types(
    driver: webdriver.Chrome, sidecar: SidecarProcess
) -> None:
    driver.delete_all_cookies()
    sign_in(driver, sidecar.url)
    visit(driver, f"{sidecar.url}/events")
    driver.find_element(By.NAME, "q").send_keys("half a wor")
    sidecar.process.send_signal(signal.SIGSTOP)
    eventually(driver, lambda there: "Connection lost since" in text_of(there, "#connection"))
    sidecar.process.send_signal(signal.SIGCONT)
    eventually(driver, lambda there: not there.find_element(By.ID, "connection").is_displayed())
    assert driver.find_element(By.NAME, "q").get_attribute("value") == "half a wor"


def test_a_database_that_cannot_be_read_is_reported_by_the_open_page(admin_browser: webdriver.Chrome, url: str) -> None:
    visit(admin_browser, url)
    with db.connection():
        db.run("ALTER TABLE watches RENAME TO watches_away")
    eventually(admin_browser, lambda there: "the sidecar answered http 5" in text_of(there, "#connection"))
    with db.connection():
        db.run("ALTER TABLE watches_away RENAME TO watches")
    eventually(admin_browser, lambda there: not there.find_element(By.ID, "connection").is_displayed())
