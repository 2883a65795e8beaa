"""The receiver's dashboard in a browser: styled like the sidecar's, light and dark, without console errors."""

import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from selenium import webdriver

from csi.local_login import LocalLogin, make_key
from csi.processing.config import ProcessingSecrets
from csi.processing.pages.app import routes
from csi.receiver.app import create_app
from csi.receiver.settings import ReceiverSettings
from ops.screenshot import READ_TOKEN
from tests.browser.test_dashboard import visit

pytestmark = pytest.mark.slow

PAGES = ("/ui", "/ui/videos", "/ui/run", "/ui/deadletters", "/ui/videos/vid00000001")
SHOWN = {
    "body": ("color", "fontFamily", "fontSize", "maxWidth"),
    "html": ("backgroundColor",),
    "h1": ("fontSize", "color"),
    ".top": ("borderBottomColor", "paddingTop"),
    ".top nav a[aria-current]": ("backgroundColor", "color", "borderRadius"),
    ".tile": ("backgroundColor", "borderRadius", "borderTopColor"),
    "section": ("backgroundColor", "borderRadius"),
    "th": ("color", "fontSize"),
    "td": ("borderTopColor", "paddingTop"),
}
MEASURE = """
return Object.fromEntries(Object.entries(arguments[0]).map(([where, names]) => {
  const style = getComputedStyle(document.querySelector(where));
  return [where, names.map(name => style[name])];
}));
"""


@pytest.fixture
def receiver(open_bench, url: str, admin_browser: webdriver.Chrome) -> Iterator[str]:
    """The receiver with its pages, where the browser is signed in; `url` is the sender it asks."""
    made = open_bench(ingester_url=url)
    made.deliver("vid00000001")
    (made.home / "transcripts" / "vid00000003.json").write_text("{broken")
    made.deliver("vid00000003", text=None)
    made.drain()
    made.start(ProcessingSecrets(ingester=READ_TOKEN))
    settings = ReceiverSettings(secret="csi-test-secret", db_path=made.home / "other.db")
    door = socket.create_server(("127.0.0.1", 0))
    app = create_app(settings, extra_routes=routes(made.rt, None, LocalLogin(made.home)))
    server = uvicorn.Server(uvicorn.Config(app, ws="none", access_log=False, log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{door.getsockname()[1]}"
    admin_browser.get(f"{address}/ui/login?key={make_key(made.home)}")
    yield address
    server.should_exit = True
    thread.join(10)
    door.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_dashboards_look_alike(admin_browser: webdriver.Chrome, url: str, receiver: str, scheme: str) -> None:
    preference = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)
    visit(admin_browser, url)
    theirs = admin_browser.execute_script(MEASURE, SHOWN)
    visit(admin_browser, f"{receiver}/ui")
    assert admin_browser.execute_script(MEASURE, SHOWN) == theirs
    assert theirs["html"] == [{"light": "rgb(246, 247, 249)", "dark": "rgb(16, 20, 27)"}[scheme]]
    admin_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_every_page_is_drawn_without_a_complaint_and_fits_a_phone(
    admin_browser: webdriver.Chrome, receiver: str
) -> None:
    for path in PAGES:
        visit(admin_browser, receiver + path)
        assert admin_browser.execute_script("return document.querySelectorAll('[style], script').length") == 0
        assert admin_browser.execute_script("return document.querySelector('.brand img').naturalWidth") > 0
    assert [line["message"] for line in admin_browser.get_log("browser")] == []
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    admin_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    for path in PAGES:
        visit(admin_browser, receiver + path)
        assert admin_browser.execute_script("return document.documentElement.scrollWidth") <= 390, path
    admin_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
