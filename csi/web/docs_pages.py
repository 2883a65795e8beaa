"""`/docs/…`: the runbook and the documentation as pages. They need no token and show nothing of the installation."""

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from csi.web.page_rendering import error_page, standalone_page

if TYPE_CHECKING:
    from markdown_it.token import Token

SITE = Path(__file__).parent / "site"
"""Where `make docs` writes the site. It is not in the repository."""
PACKAGED = Path(__file__).parent / "markdown"
"""Where the wheel has the files (`force-include` in pyproject.toml)."""
CHECKOUT = Path(__file__).resolve().parents[2]
_ELSEWHERE = re.compile(r"https?://|#")


@dataclass(frozen=True)
class Document:
    """One rendered page. `sections`: anchor and title of the headings of the second level."""

    title: str
    sections: tuple[tuple[str, str], ...]
    html: Markup


async def show_document(request: Request) -> Response:
    """A page of the site that `make docs` built, which a release contains; else the page rendered from Markdown."""
    name = request.path_params.get("name", "")
    if site_files():
        name = name or ("/" if request.url.path.endswith("/") else "")
        if f"{name}/index.html" in site_files() or not name:
            # The links of a page are relative to its folder. The browser keeps the fragment of a problem's link.
            return RedirectResponse(f"/docs/{name}/" if name else "/docs/", 307)
        path = site_files().get(f"{name.lstrip('/')}index.html" if name.endswith("/") else name)
        if path is None:
            return error_page(404, "there is no page of this name")
        if path.suffix != ".html":
            return FileResponse(path, headers={"Cache-Control": "max-age=3600"})
        return Response(_html(path), media_type="text/html", headers={"Content-Security-Policy": _policy(path)})
    if not name.strip("/"):
        return RedirectResponse("/docs/runbook", 307)
    if name not in files():
        return error_page(404, "there is no document of this name")
    return standalone_page("document.html", document=document(name), names=list(files()), name=name)


@cache
def site_files() -> dict[str, Path]:
    """The files of the built site by their path in it; empty where it was not built. No other file is ever opened."""
    return {str(path.relative_to(SITE)): path for path in SITE.rglob("*") if path.is_file()}


@cache
def _html(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _policy(path: Path) -> str:
    """Scripts of this server, and the ones that the theme puts into the page, by their hash."""
    inline = re.findall(rb"<script>(.*?)</script>", _html(path), re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in dict.fromkeys(inline))
    return (
        f"default-src 'none'; script-src 'self' {hashes}; worker-src 'self'; connect-src 'self'; font-src 'self'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    )


@cache
def files() -> dict[str, Path]:
    """The documents by name, the runbook first. No other file is ever opened."""
    packaged = sorted(PACKAGED.glob("*.md"))
    found = packaged or [*sorted((CHECKOUT / "docs").glob("*.md")), CHECKOUT / "ops" / "runbook.md"]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem != "runbook")}


@cache
def document(name: str) -> Document:
    return render(files()[name].read_text(encoding="utf-8"), frozenset(files()))


def render(text: str, names: frozenset[str]) -> Document:
    """Markdown as HTML. HTML within the text is escaped; a link to a file that is not in `names` is left out."""
    from markdown_it import MarkdownIt  # only these pages need it

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = markdown.parse(text)
    titles: list[tuple[str, str, str]] = []
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            title = "".join(part.content for part in content.children or ())
            opening.attrSet("id", anchor(title))
            titles.append((opening.tag, anchor(title), title))
    # Links between the documents lead to `/docs/…`; of a link to a file that is not served only its text stays.
    for token in tokens:
        kept: list[Token] = []
        is_served = True
        for part in token.children or ():
            if part.type == "link_open":
                target = served_link(str(part.attrGet("href")), names)
                is_served = target is not None
                part.attrSet("href", target or "")
            if is_served or part.type not in ("link_open", "link_close"):
                kept.append(part)
        if token.children:
            token.children = kept
    return Document(
        title=next((title for tag, _, title in titles if tag == "h1"), "CSI"),
        sections=tuple((link, title) for tag, link, title in titles if tag == "h2"),
        html=Markup(markdown.renderer.render(tokens, markdown.options, {})),  # noqa: S704 the renderer escaped it
    )


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def served_link(target: str, names: frozenset[str]) -> str | None:
    """Where a link of a document leads on this server; None: to a file that is not served."""
    if _ELSEWHERE.match(target):
        return target
    path, _, fragment = target.partition("#")
    stem = path.rpartition("/")[2].removesuffix(".md")
    if not path.endswith(".md") or stem not in names:
        return None
    return f"/docs/{stem}#{fragment}" if fragment else f"/docs/{stem}"
