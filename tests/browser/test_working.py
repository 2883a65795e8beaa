"""Working in the dashboard in a real browser: forms, selection, keys, focus, local times, the menu on a phone, and what
Lighthouse would look for."""

import re

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from csi.runtime import Runtime
from csi.store import db, poll_history
from csi.store.models import Watch
from csi.web.pages import pages
from ops.screenshot import add_event
from tests.browser.test_dashboard import CONTRAST, complaints, press, text_of, until, visit

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

# What has no name for a screen reader, no label, no scope, or is too small to touch (WCAG 2.2: 24 px, or space around).
FAULTS = """
const named = (one) => (one.getAttribute("aria-label") || one.textContent || one.title || "").trim()
  || [...(one.labels || [])].some((label) => label.textContent.trim());
const where = (one) => one.outerHTML.slice(0, 90);
const seen = (one) => one.checkVisibility() && !one.closest("[hidden]");
const faults = [];
for (const one of document.querySelectorAll("a[href], button, summary")) {
  if (seen(one) && !named(one) && !one.closest("svg")) faults.push(`no name: ${where(one)}`);
}
for (const one of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
  if (seen(one) && !named(one)) faults.push(`no label: ${where(one)}`);
}
for (const one of document.querySelectorAll("th")) {
  if (one.scope !== "col" && one.scope !== "row") faults.push(`no scope: ${where(one)}`);
  if (!one.textContent.trim()) faults.push(`empty header: ${where(one)}`);
}
for (const one of document.querySelectorAll("button, input:not([type=hidden]), select")) {
  const { width, height } = one.getBoundingClientRect();
  const hit = (one.closest("label") || one).getBoundingClientRect();
  const isSmall = Math.max(width, hit.width) < 18 || Math.max(height, hit.height) < 18;
  if (seen(one) && width && isSmall) faults.push(`small: ${where(one)}`);
}
const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`id twice: ${id}`);
const nav = document.getElementById("nav");
for (const one of nav.checkVisibility() ? nav.children : []) {
  if (one.getBoundingClientRect().right > innerWidth) faults.push(`cut: ${where(one)}`);
}
if (nav.checkVisibility() && nav.scrollWidth > nav.clientWidth + 1) faults.push("navigation is cut");
if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
if (!document.documentElement.lang || !document.title) faults.push("no lang or title");
return [...new Set(faults)];
"""


def remember_reads(rt: Runtime) -> int:
    """A watch that was added by command, with reads; its number."""
    from csi.admin import watches

    with db.connection():
        number = watches.add(rt, "UC" + "z" * 22, watches.WatchOptions({"name": "Zed", "tags": ("ai",)})).watch_id
        for place in range(30):
            watch = Watch.get_by_id(number)
            read = poll_history.PastRead(rt.now() - 300 + place, 0.2, "failed" if place == 7 else "unchanged", 0, None)
            Watch.update(**poll_history.add(watch, read)).where(Watch.id == number).execute()
    assert number is not None
    return number


def test_no_page_has_a_fault_by_day_by_night_and_on_a_phone(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    number = remember_reads(rt)
    paths = [page.path for page in pages() if page.is_listed]
    paths += ["/sources/add", f"/sources/{number}", f"/sources/{number}/edit", "/events/1", "/dead-letters/1", "/nope"]
    faults = dict[str, object]()
    for scheme, is_phone in (("light", False), ("dark", False), ("light", True)):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        if is_phone:
            admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        try:
            for path in paths:
                visit(admin_browser, url + path)
                found = [*admin_browser.execute_script(CONTRAST), *admin_browser.execute_script(FAULTS)]
                width = admin_browser.execute_script("return document.documentElement.scrollWidth")
                if is_phone and width > 390:
                    found.append(f"{width} px wide")
                if found:
                    faults[f"{path} {scheme}{' phone' if is_phone else ''}"] = found
        finally:
            admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert faults == {}


SMALL_LABELS = """
return [...document.querySelectorAll("svg text")].map((one) =>
  [one.textContent, parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a]
).filter(([, size]) => size < 10);
"""


def test_labels_of_charts_are_large_enough_to_read(admin_browser: webdriver.Chrome, url: str, rt: Runtime) -> None:
    paths = ("/", f"/sources/{remember_reads(rt)}")
    for is_phone in (False, True):
        if is_phone:
            admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        try:
            for path in paths:
                visit(admin_browser, url + path)
                assert admin_browser.find_elements(By.CSS_SELECTOR, "svg text")
                assert admin_browser.execute_script(SMALL_LABELS) == [], path
        finally:
            admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_navigation_stays_on_one_line_on_a_small_laptop(admin_browser: webdriver.Chrome, url: str) -> None:
    laptop = {"width": 1180, "height": 840, "deviceScaleFactor": 1, "mobile": False}
    admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", laptop)
    try:
        heights = dict[str, int]()
        for page in pages():
            if page.is_listed:
                visit(admin_browser, url + page.path)
                heights[page.path] = admin_browser.find_element(By.ID, "nav").size["height"]
        assert len(set(heights.values())) == 1, heights
    finally:
        admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_phone_the_navigation_is_a_menu_with_a_badge(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        visit(admin_browser, f"{url}/events")
        link = admin_browser.find_element(By.CSS_SELECTOR, '#nav a[href="/dead-letters"]')
        assert not link.is_displayed()
        assert re.search(r"\d", text_of(admin_browser, "#menu .count"))
        press(admin_browser, "#menu")
        until(admin_browser, lambda driver: link.is_displayed())
        assert text_of(admin_browser, '#nav a[href="/dead-letters"] .count') == "5"
        link.click()
        until(admin_browser, lambda driver: text_of(driver, "h1") == "Dead letters")
    finally:
        admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_keys_move_through_rows_tick_and_change_pages(admin_browser: webdriver.Chrome, url: str) -> None:
    visit(admin_browser, f"{url}/sources?sort=name")
    body = admin_browser.find_element(By.TAG_NAME, "body")
    body.send_keys("jj")
    second = admin_browser.execute_script("return document.activeElement.textContent")
    assert second == admin_browser.find_elements(By.CSS_SELECTOR, "tbody tr a.name")[1].text
    admin_browser.switch_to.active_element.send_keys("x")
    assert text_of(admin_browser, "[data-count=bulk]") == "With the 1 ticked:"
    admin_browser.switch_to.active_element.send_keys("/")
    assert admin_browser.execute_script("return document.activeElement.name") == "q"
    admin_browser.switch_to.active_element.send_keys("gs", Keys.ESCAPE)
    body.send_keys("?")
    until(admin_browser, lambda driver: driver.find_element(By.ID, "keys").is_displayed())
    admin_browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    body.send_keys("gd")
    until(admin_browser, lambda driver: text_of(driver, "h1") == "Dead letters")
    assert complaints(admin_browser) == []


def test_focus_ticks_and_open_details_survive_a_refresh(admin_browser: webdriver.Chrome, url: str, rt: Runtime) -> None:
    visit(admin_browser, f"{url}/dead-letters")
    admin_browser.execute_script(
        "window.row = document.getElementById('letter-3'); window.button = window.row.querySelector('button');"
        "window.row.querySelector('input[type=checkbox]').click(); window.button.focus()"
    )
    with db.connection():
        db.run("UPDATE dead_letter SET state = 'discarded', closed_at = ? WHERE id = 5", rt.now())
    admin_browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
    until(admin_browser, lambda driver: driver.find_elements(By.ID, "letter-5") == [])
    assert admin_browser.execute_script("return document.activeElement === window.button && window.row.isConnected")
    assert admin_browser.execute_script("return window.row.querySelector('input[type=checkbox]').checked")
    assert "4 open dead letters" in text_of(admin_browser, ".lead")
    assert text_of(admin_browser, '#nav a[href="/dead-letters"] .count') == "4"


def test_a_page_that_did_not_change_is_not_sent_again(admin_browser: webdriver.Chrome, url: str, rt: Runtime) -> None:
    visit(admin_browser, f"{url}/dead-letters")
    sizes = "return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch' "
    sizes += "&& one.name.endsWith('/dead-letters')).map((one) => [one.responseStatus, one.decodedBodySize])"
    for _ in range(3):
        admin_browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
        count = len(admin_browser.execute_script(sizes))
        until(admin_browser, lambda driver, count=count: len(driver.execute_script(sizes)) > count or count >= 3)
    assert [304, 0] in admin_browser.execute_script(sizes)[1:]


def test_times_are_local_with_utc_on_hover(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    try:
        visit(admin_browser, f"{url}/events/1")
        shown = admin_browser.find_element(By.CSS_SELECTOR, ".timeline time")
        utc, local = shown.get_attribute("datetime")[11:16], shown.text[:5]
        minutes = [int(text[:2]) * 60 + int(text[3:]) for text in (utc, local)]
        assert (minutes[1] - minutes[0]) % 1440 == 330
        assert shown.get_attribute("title").endswith(f"{utc}{shown.get_attribute('title')[16:]}")
        assert shown.get_attribute("title").endswith("UTC")
        visit(admin_browser, f"{url}/events")
        title = admin_browser.find_element(By.CSS_SELECTOR, "td time").get_attribute("title")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", title)
    finally:
        admin_browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_a_watch_is_added_changed_and_shown_by_forms(admin_browser: webdriver.Chrome, url: str, rt: Runtime) -> None:
    visit(admin_browser, f"{url}/sources/add")
    admin_browser.find_element(By.NAME, "what").send_keys("UC" + "y" * 22)
    press(admin_browser, "form.settings details summary")
    admin_browser.find_element(By.NAME, "name").send_keys("Why")
    admin_browser.find_element(By.NAME, "poll_interval_seconds").send_keys("10m")
    press(admin_browser, "form.settings button.main")
    until(admin_browser, lambda driver: "Why is watched" in text_of(driver, ".note"))
    press(admin_browser, 'a[href$="/edit"]')
    until(admin_browser, lambda driver: driver.find_element(By.NAME, "revision"))
    with db.connection():
        row = Watch.get(Watch.name == "Why")
        from csi.admin import watch_options

        watch_options.change(rt, row, {"poll_interval_seconds": "1h"})
    admin_browser.find_element(By.NAME, "tags").send_keys("mine")
    press(admin_browser, "form.settings button.main")
    until(admin_browser, lambda driver: "changed meanwhile: interval from 600 s to 3600 s" in text_of(driver, ".note"))
    assert admin_browser.find_element(By.NAME, "tags").get_attribute("value") == "mine"
    press(admin_browser, "form.settings button.main")
    until(admin_browser, lambda driver: "is changed" in text_of(driver, ".note"))
    with db.connection():
        assert Watch.get_by_id(row.id).tags_json == '["mine"]'


def test_a_click_on_a_bar_opens_the_events_of_its_interval(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    with db.connection():
        add_event(Watch.get_by_id(1), 9_000, rt.now(), "urgent", "Just now")
    visit(admin_browser, url)
    last = admin_browser.find_elements(By.CSS_SELECTOR, "svg.flow a")[11]
    admin_browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", last)
    until(admin_browser, lambda driver: "from=" in driver.current_url and "Just now" in text_of(driver, "main"))
