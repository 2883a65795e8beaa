"""Builds the documentation as a static site that the sidecar serves at /docs/: `make docs`. Every link is checked."""

import re
import shutil
import sys
import tempfile
from os.path import relpath
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException

from csi.web.docs_pages import SITE, anchor

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "ops/runbook.md": "runbook.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\]\\]|\\.)*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def pages() -> dict[Path, str]:
    """Each page of the repository, and its name on the site."""
    found = {ROOT / path: name for path, name in NAMES.items()}
    found |= {path: path.name for path in sorted((ROOT / "docs").glob("*.md"))}
    return found | {path: f"decisions/{path.name}" for path in sorted((ROOT / "ops" / "decisions").glob("*.md"))}


def stage(home: Path) -> None:
    """Write every page under its name on the site. A link to a file that is no page leaves its text."""
    every = pages()
    for source, name in every.items():
        target = home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        parts = _FENCE.split(source.read_text("utf-8"))
        target.write_text("".join(part if n % 2 else _with_links(part, source, every) for n, part in enumerate(parts)))
    shutil.copytree(ROOT / "docs" / "img", home / "img")
    text = (home / "architecture.md").read_text()
    glossary = re.search(r"^## Glossary\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert glossary, "docs/architecture.md has no section Glossary"
    (home / "glossary.md").write_text(f"# Glossary\n{glossary[1]}".replace("](#", "](architecture.md#"))


def _with_links(text: str, source: Path, every: dict[Path, str]) -> str:
    here = Path(every[source]).parent

    def rewrite(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_mark, fragment = target.partition("#")
        wanted = (source.parent / path).resolve()
        if mark:
            return f"![{label}]({relpath(Path('img') / wanted.name, here)})"
        if wanted not in every:
            return label
        return f"[{label}]({relpath(every[wanted], here)}{hash_mark}{fragment})"

    return _LINK.sub(rewrite, text)


def build_site(target: Path = SITE) -> None:
    """MkDocsException when a link or an anchor leads nowhere, or a page is not in the navigation."""
    with tempfile.TemporaryDirectory(prefix="csi-docs-") as home:
        source = Path(home) / "docs"
        stage(source)
        config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(source), site_dir=str(Path(home) / "site"))
        # The anchors of GitHub: links work in the repository, in `csi docs` and here.
        config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda title, separator: anchor(title)
        build(config)
        (Path(home) / "site" / "sitemap.xml.gz").unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(Path(home) / "site", target)


if __name__ == "__main__":
    try:
        build_site()
    except MkDocsException as error:
        sys.exit(f"the site was not built: {error}")
    sys.stderr.write(f"{SITE}: {sum(1 for _ in SITE.rglob('*.html'))} pages\n")
