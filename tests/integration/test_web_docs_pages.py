"""`/docs/…`: the runbook that problems link to is served without a token, is safe to show, and is in the wheel."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from csi.emitter import failure_cause
from csi.errors import ConfigError
from csi.runtime import Runtime
from csi.status import storage_problems
from csi.status.problems import KINDS
from csi.web import docs_pages, page_rendering
from csi.web.app import create_app

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(docs_pages.files())


def no_runtime() -> Runtime:
    raise ConfigError("the documents must not need the configuration")


@pytest.fixture(autouse=True)
def without_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a checkout where `make docs` was not called."""
    monkeypatch.setattr(docs_pages, "site_files", dict)


@pytest_asyncio.fixture
async def guest() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(no_runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
        yield one


def ids(html: str) -> set[str]:
    return set(re.findall(r' id="([^"]+)"', html))


@pytest.mark.asyncio
async def test_each_kind_of_problem_has_its_section_in_the_served_runbook(guest: httpx.AsyncClient) -> None:
    answer = await guest.get("/docs/runbook")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    causes = {
        getattr(failure_cause, name) for name in ("AUTHENTICATION", "ADDRESS", "AWAY", "CLOCK", "REFUSES", "TEMPLATE")
    }
    rules = (ROOT / "ops/prometheus/csi.rules.yml").read_text()
    linked = {*re.findall(r"/docs/runbook#([a-z0-9-]+)", rules), *storage_problems.SECTIONS.values(), *causes}
    assert linked | {kind.runbook for kind in KINDS.values()} <= ids(answer.text)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NAMES)
async def test_a_document_has_the_policy_of_the_dashboard_and_no_script(guest: httpx.AsyncClient, name: str) -> None:
    answer = await guest.get(f"/docs/{name}")
    assert answer.headers["content-security-policy"] == page_rendering.POLICY
    assert "<script" not in answer.text
    assert " style=" not in answer.text


@pytest.mark.asyncio
async def test_every_link_between_the_documents_leads_to_a_place(guest: httpx.AsyncClient) -> None:
    pages = {name: (await guest.get(f"/docs/{name}")).text for name in NAMES}
    places = {f"/docs/{name}#{anchor}" for name in NAMES for anchor in ids(pages[name])}
    known = {f"/docs/{name}" for name in NAMES} | places | {"/"}
    for name, html in pages.items():
        links = [link for link in re.findall(r'<a href="([^"]*)"', html) if not link.startswith("http")]
        assert {link if link.startswith("/") else f"/docs/{name}{link}" for link in links} - known == set(), name


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["nothing", "%2e%2e%2fpyproject.toml", "runbook.md", "RUNBOOK"])
async def test_no_other_file_is_shown(guest: httpx.AsyncClient, name: str) -> None:
    assert (await guest.get(f"/docs/{name}")).status_code == 404


def test_what_a_document_contains_stays_text() -> None:
    text = (
        "# Title\n\n<script>window.hit = 1</script>\n\n[x](javascript:alert(1)) "
        "[code](../csi/main.py) [other](other.md#a)\n\n![image](http://127.0.0.1/x.png)"
    )
    html = docs_pages.render(text, frozenset({"other"})).html
    assert "<script" not in html
    assert "<img" not in html
    assert 'href="javascript' not in html
    assert "main.py" not in html
    assert '<a href="/docs/other#a">other</a>' in html


def test_the_wheel_has_the_documents(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
    code = (
        "from csi.web import docs_pages as d; print(d.PACKAGED, *sorted(d.files())); print(d.document('runbook').title)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "site",
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [f"{tmp_path}/site/csi/web/markdown {' '.join(NAMES)}", "Runbook"], done.stderr


# ── the built site ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a site built now. A link or an anchor that leads nowhere fails the build."""
    docs_site = pytest.importorskip("ops.docs_site", reason="mkdocs-material is not installed: make setup")
    home = tmp_path_factory.mktemp("site") / "site"
    docs_site.build_site(home)
    return {str(path.relative_to(home)): path for path in home.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_built_site_is_served_with_its_search_and_needs_no_other_host(
    guest: httpx.AsyncClient, site: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs_pages, "site_files", lambda: site)
    for path, target in {"/docs": "/docs/", "/docs/runbook": "/docs/runbook/"}.items():
        answer = await guest.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, target)
    runbook = await guest.get("/docs/runbook/")
    assert {kind.runbook for kind in KINDS.values()} <= ids(runbook.text), "links of problems lead to sections"
    assert "Thirty tasks" in (await guest.get("/docs/")).text
    assert "<h1" in (await guest.get("/docs/glossary/")).text
    policy = runbook.headers["content-security-policy"]
    inline = re.findall(r"<script>(.*?)</script>", runbook.text, re.DOTALL)
    assert inline
    assert policy.count("'sha256-") == len(set(inline))
    assert "script-src 'self' 'sha256-" in policy
    loaded = set(re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', runbook.text))
    assert not loaded, "nothing is loaded from another host"
    index = json.loads((await guest.get("/docs/search/search_index.json")).text)
    assert {"runbook/", "howto/"} <= {one["location"].partition("#")[0] for one in index["docs"]}
    for path in ("/docs/../app.py", "/docs/no-such-page/", "/docs/%2e%2e/app.py"):
        assert (await guest.get(path)).status_code in (303, 404)
