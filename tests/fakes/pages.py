"""The documentation as data: its pages, their code blocks, tables, headings and links."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "ops" / "runbook.md"]
ALL = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "ops").rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The page's blocks in order; all, or those of one language."""
    text = page.read_text()
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"], textwrap.dedent(match["text"]))
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if language is None or block.language == language]


def every(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, language)]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text())


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next of its kind or higher."""
    text = page.read_text()
    level, start = next(
        (len(match[1]), match.end()) for match in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE) if match[2] == heading
    )
    following = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE).search(text, start)
    return text[start : following.start() if following else len(text)]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row but heads and rules."""
    lines = [line.strip() for line in text.splitlines()]
    bodies = [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not _is_rule(line) and not _is_rule(following)
    ]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in bodies]


def codes(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The headings as GitHub makes link targets of them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _is_rule(line: str) -> bool:
    return re.fullmatch(r"\|[\s:|-]+\|", line) is not None
