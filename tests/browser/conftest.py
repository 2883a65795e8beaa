"""A sidecar over a made-up day, and a real chromium that connects to nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from csi.runtime import Runtime
from ops.screenshot import BROWSER, DRIVER, browser, furnish, open_show, served, sign_in


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    missing = [str(path) for path in (BROWSER, DRIVER) if not path.exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not there; enable with: apt-get install chromium chromium-driver")
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as found:
        yield found


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    found = open_show(tmp_path)
    furnish(found, events_a_day=60)
    return found


@pytest.fixture
def url(rt: Runtime) -> Iterator[str]:
    with served(rt) as address:
        yield address


@pytest.fixture
def admin_browser(driver: webdriver.Chrome, url: str) -> webdriver.Chrome:
    """Signed in as admin, with an empty console."""
    driver.delete_all_cookies()
    sign_in(driver, url)
    driver.get_log("browser")
    return driver
