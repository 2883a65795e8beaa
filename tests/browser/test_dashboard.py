"""The dashboard in a real browser: every page, changes, hostile text, a phone, dark mode, and without JavaScript."""

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from csi.dlq import dead_letters
from csi.runtime import Runtime
from csi.store import db, destinations, hosts
from csi.store.models import Watch
from csi.web.pages import pages
from ops.screenshot import READ_TOKEN, add_event, browser, bury, sign_in

pytestmark = pytest.mark.slow

HOSTILE = (
    "</title></textarea><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    "<svg onload=window.hit=3><a href='javascript:window.hit=4'>x</a>{{7*7}}\u202e\u0000"
).replace("\u0000", "")


BETWEEN_PAGES = (NoSuchElementException, StaleElementReferenceException)


def until(driver: webdriver.Chrome, condition: Callable[[webdriver.Chrome], object]) -> None:
    """The page before may still be there, or be gone already."""
    WebDriverWait(driver, 10, 0.05, ignored_exceptions=BETWEEN_PAGES).until(condition)


def visit(driver: webdriver.Chrome, url: str) -> None:
    """Also waits until the page before is gone and the style sheets are applied: under load, chromedriver sometimes
    returns earlier."""
    driver.execute_script("window.isPageBefore = true")
    driver.get(url)
    is_there = "return !window.isPageBefore && document.readyState === 'complete'"
    until(driver, lambda there: there.execute_script(is_there))


def text_of(driver: webdriver.Chrome, selector: str = "body") -> str:
    return driver.find_element(By.CSS_SELECTOR, selector).text


def complaints(driver: webdriver.Chrome) -> list[str]:
    return [line["message"] for line in driver.get_log("browser")]


def press(driver: webdriver.Chrome, selector: str) -> None:
    driver.find_element(By.CSS_SELECTOR, selector).click()


def test_every_page_is_reached_by_the_navigation_and_none_complains(admin_browser: webdriver.Chrome, url: str) -> None:
    for page in filter(lambda one: one.is_listed, pages()):
        press(admin_browser, f'#nav a[href="{page.path}"]')
        until(admin_browser, lambda driver, page=page: text_of(driver, "#nav a[aria-current]").startswith(page.title))
        assert len(text_of(admin_browser, "main")) > 40
        assert admin_browser.execute_script("return document.querySelectorAll('[style]').length") == 0
    for path in ("/sources/1", "/events/1", "/dead-letters/1"):
        admin_browser.get(url + path)
        assert text_of(admin_browser, "h1")
    assert complaints(admin_browser) == []


def test_a_dead_letter_is_replayed_alone_and_then_its_group(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.get(f"{url}/dead-letters/1")
    press(admin_browser, 'form[action="/dead-letters/replay"] button')
    until(admin_browser, lambda driver: "1 of 1 dead letter pending again" in text_of(driver, ".note"))
    with db.connection():
        assert (db.value("SELECT state FROM dead_letter WHERE id = ?", 1), dead_letters.open_count()) == (
            "replaying",
            4,
        )
    admin_browser.get(f"{url}/dead-letters")
    assert text_of(admin_browser, "section td.num") == "3"
    press(admin_browser, 'section form[action="/dead-letters/replay"] button.main')
    until(admin_browser, lambda driver: "3 of 3 dead letters pending again" in text_of(driver, ".note"))
    with db.connection():
        assert dead_letters.open_count() == 1
    assert complaints(admin_browser) == []


def test_a_source_is_paused_and_resumed(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.get(f"{url}/sources")
    press(admin_browser, 'form[action="/sources/1/pause"] button')
    until(admin_browser, lambda driver: "is paused." in text_of(driver, ".note"))
    assert "paused" in text_of(admin_browser, "#watch-1 .pill")
    with db.connection():
        assert Watch.get_by_id(1).state == "paused"
    press(admin_browser, 'form[action="/sources/1/resume"] button')
    until(admin_browser, lambda driver: "is resumed" in text_of(driver, ".note"))
    with db.connection():
        assert Watch.get_by_id(1).state == "active"


def test_a_question_is_asked_before_delivery_is_paused(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.get(url)
    press(admin_browser, 'form[action="/destinations/default/pause"] button')
    admin_browser.switch_to.alert.dismiss()
    with db.connection():
        assert destinations.get().paused_reason is None
    press(admin_browser, 'form[action="/destinations/default/pause"] button')
    admin_browser.switch_to.alert.accept()
    until(admin_browser, lambda driver: "Delivery to default is paused" in text_of(driver, ".note"))
    assert "is paused by the operator" in text_of(admin_browser, "#problems")


def test_hostile_titles_stay_text(admin_browser: webdriver.Chrome, url: str, rt: Runtime) -> None:
    with db.connection():
        watch = Watch.get_by_id(1)
        Watch.update(name=HOSTILE, last_error=HOSTILE, health="suspect").where(Watch.id == 1).execute()
        number = add_event(watch, 9_000, rt.now(), "urgent", HOSTILE)
        letter = bury(watch, 9_001, rt.now(), HOSTILE, HOSTILE, "event", 422)
        destinations.change("default", paused_reason=HOSTILE, paused_at=rt.now())
        hosts.begin_outage(hosts.get("www.youtube.com"), rt.now(), HOSTILE, 3)
    for path in ("/", "/sources", "/sources/1", "/events", f"/events/{number}", "/dead-letters", "/schedule",
                 f"/dead-letters/{letter}"):  # fmt: skip
        admin_browser.get(url + path)
        assert admin_browser.execute_script("return window.hit") is None, path
        strange = "main script, main img, main svg a:not([href^='/events?from='])"
        assert admin_browser.find_elements(By.CSS_SELECTOR, strange) == []
        assert "window.hit" in admin_browser.find_element(By.TAG_NAME, "html").get_attribute("textContent"), path
    assert complaints(admin_browser) == []


def test_the_policy_stops_what_gets_in_by_another_way(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.get(url)
    admin_browser.execute_script(
        "const bad = document.createElement('div'); bad.innerHTML = '<img src=x onerror=\"window.hit = 5\">';"
        "document.body.append(bad)"
    )
    until(admin_browser, lambda driver: "Content Security Policy" in " ".join(complaints(driver)))
    assert admin_browser.execute_script("return window.hit") is None


def test_a_page_refreshes_unless_the_operator_types_or_reads(
    admin_browser: webdriver.Chrome, url: str, rt: Runtime
) -> None:
    admin_browser.get(f"{url}/events")
    with db.connection():
        add_event(Watch.get_by_id(1), 9_000, rt.now(), "urgent", "Brand new event")
    until(admin_browser, lambda driver: "Brand new event" in text_of(driver, "main"))
    search = admin_browser.find_element(By.NAME, "q")
    search.send_keys("half a wor")
    with db.connection():
        add_event(Watch.get_by_id(1), 9_001, rt.now(), "urgent", "Even newer")
    admin_browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
    until(admin_browser, lambda driver: driver.execute_script("return document.body.classList.contains('held')"))
    assert "Even newer" not in text_of(admin_browser, "main")
    assert admin_browser.find_element(By.NAME, "q").get_attribute("value") == "half a wor"


def test_a_reader_has_no_buttons(driver: webdriver.Chrome, url: str) -> None:
    driver.delete_all_cookies()
    sign_in(driver, url, READ_TOKEN)
    for page in pages():
        driver.get(url + page.path)
        assert driver.find_elements(By.CSS_SELECTOR, 'main form[method="post"]') == []
    assert text_of(driver, ".role") == "read only"


def test_the_event_page_offers_a_curl_command_without_a_secret(admin_browser: webdriver.Chrome, url: str) -> None:
    admin_browser.get(f"{url}/events/1")
    press(admin_browser, "details.curl summary")
    button = admin_browser.find_element(By.CSS_SELECTOR, "button.copy")
    assert button.is_displayed()
    shown = text_of(admin_browser, "#curl-text")
    assert "CSI_UA_SHARED_SECRET" in shown
    assert "Authorization: Bearer %s" in shown
    assert "show-shared-secret" not in admin_browser.page_source


def test_on_a_phone_nothing_is_wider_than_the_screen(admin_browser: webdriver.Chrome, url: str) -> None:
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for path in (*(page.path for page in pages()), "/sources/1", "/events/1", "/dead-letters/1"):
            visit(admin_browser, url + path)
            assert admin_browser.execute_script("return document.documentElement.scrollWidth") <= 360, path
    finally:
        admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_by_day_and_by_night(admin_browser: webdriver.Chrome, url: str, scheme: str) -> None:
    """WCAG AA: a contrast of 4.5 between every visible text and what is behind it."""
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    try:
        for page in pages():
            visit(admin_browser, url + page.path)
            dark = admin_browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
            assert (scheme == "dark") == (int(dark.split("(")[1].split(",")[0]) < 100)
            assert admin_browser.execute_script(CONTRAST) == [], page.path
    finally:
        admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const found = parse(getComputedStyle(at).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return parse(getComputedStyle(document.documentElement).backgroundColor);
};
const poor = [];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !one.checkVisibility() || one.closest("svg") || one.matches("option, .skip")) continue;
  const [a, b] = [light(parse(getComputedStyle(one).color)), light(behind(one))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const name = `${one.tagName}.${one.className} ${one.textContent.trim().slice(0, 30)}`;
  if (contrast < 4.5) poor.push(`${contrast.toFixed(2)} ${name}`);
}
return [...new Set(poor)];
"""


def test_it_works_without_javascript(url: str, tmp_path: Path) -> None:
    with browser(tmp_path / "profile", "--blink-settings=scriptEnabled=false") as driver:
        sign_in(driver, url)
        press(driver, '#nav a[href="/sources"]')
        until(driver, lambda there: there.find_element(By.CSS_SELECTOR, 'form[action="/sources/1/pause"]'))
        press(driver, 'form[action="/sources/1/pause"] button')
        until(driver, lambda there: "is paused." in text_of(there, ".note"))
        driver.get(f"{url}/dead-letters")
        press(driver, 'section form[action="/dead-letters/replay"] button.main')
        until(driver, lambda there: "pending again" in text_of(there, ".note"))
        press(driver, "form.out button")
        until(driver, lambda there: there.current_url.endswith("/login"))
