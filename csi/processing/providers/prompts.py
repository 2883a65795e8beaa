"""Prompt files: a header with id and version, then the text. A file in `prompts_dir` replaces the shipped one."""

import re
from pathlib import Path

from csi.errors import ConfigError
from csi.processing.providers.base import Prompt

SHIPPED = Path(__file__).resolve().parents[1] / "prompts"
_HEAD = re.compile(
    r'\A---\nid: "?(?P<id>[\w.-]{1,64})"?\nversion: "?(?P<version>[\w.-]{1,32})"?\n---\n(?P<text>.+)\Z', re.DOTALL
)


def load_prompt(name: str, own: Path | None = None) -> Prompt:
    path = own / f"{name}.md" if own and (own / f"{name}.md").is_file() else SHIPPED / f"{name}.md"
    try:
        found = _HEAD.fullmatch(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: the prompt cannot be read") from error
    if found is None:
        raise ConfigError(f"{path}: a prompt begins with ---, id: …, version: …, --- and then its text")
    return Prompt(found["id"], found["version"], found["text"].strip())


def fill(prompt: Prompt, **words: str) -> str:
    """Replace only the named placeholders: a prompt contains JSON, whose braces must stay."""
    text = prompt.text
    for name, word in words.items():
        text = text.replace("{" + name + "}", word)
    return text
