"""The provider `openai`: any endpoint with OpenAI's chat completions. Long transcripts are split and merged."""

import json
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from csi import clock
from csi.errors import ConfigError
from csi.net import HttpLimits, Net
from csi.processing.collection_models import Text, VideoSummary
from csi.processing.money import exact, round_up
from csi.processing.providers.base import AskModel, ModelReply, ProviderError, SummaryInput, SummaryResult, SummaryType
from csi.processing.providers.http_errors import call_json
from csi.processing.sanitize import plain_line
from csi.processing.settings import OpenAISettings

Model = TypeVar("Model", bound=BaseModel)

WHO = "the model"
MILLION = Decimal(1_000_000)
CHARACTERS_PER_TOKEN = 3
"""Fewer than the usual four: an estimate that is too low would exceed the budget."""
MAX_TOKENS = 100_000_000
FORMS: dict[SummaryType, str] = {
    "short": "",
    "detailed": "Write it in detail: every point of the video, and an executive_summary of two to three paragraphs.",
    "executive": "Write it for a person who decides: the executive_summary matters most, results first.",
}
SHIPPED = Path(__file__).resolve().parents[1] / "prompts"
_HEAD = re.compile(
    r'\A---\nid: "?(?P<id>[\w.-]{1,64})"?\nversion: "?(?P<version>[\w.-]{1,32})"?\n---\n(?P<text>.+)\Z', re.DOTALL
)


@dataclass(frozen=True)
class Prompt:
    """A prompt file. Its `id` and `version` are stored in every document made with it."""

    id: str
    version: str
    text: str


def load_prompt(name: str, own: Path | None = None) -> Prompt:
    return load_prompt_file(own / f"{name}.md" if own and (own / f"{name}.md").is_file() else SHIPPED / f"{name}.md")


def load_prompt_file(path: Path) -> Prompt:
    try:
        found = _HEAD.fullmatch(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: the prompt cannot be read") from error
    if found is None:
        raise ConfigError(f"{path}: a prompt begins with ---, id: …, version: …, --- and then its text")
    return Prompt(found["id"], found["version"], found["text"].strip())


class SummaryReply(VideoSummary):
    """The JSON that the summary prompt requests."""

    model_config = ConfigDict(extra="ignore")

    bullets: list[Text] = Field(min_length=1, max_length=50)
    key_concepts: list[Text] = Field(max_length=50)
    executive_summary: Text = Field(min_length=1)


class MarkdownReply(BaseModel):
    """The JSON that a document's prompt requests."""

    markdown: str = Field(min_length=1)


@dataclass(frozen=True)
class ChatClient:
    """The client of the endpoint."""

    settings: OpenAISettings
    net: Net
    key: str | None = field(default=None, repr=False)
    now: Callable[[], float] = clock.now

    def estimate(self, system: str, user: str) -> Decimal:
        size = len(system.encode()) + len(user.encode())
        return self._price(size // CHARACTERS_PER_TOKEN + 20, self.settings.max_output_tokens, round_up)

    def price(self, reply: ModelReply) -> Decimal:
        return self._price(reply.input_tokens, reply.output_tokens, exact)

    def complete(self, system: str, user: str, *, key: str) -> ModelReply:
        """One paid call. An endpoint that honours the idempotency key never carries it out twice."""
        body = {
            "model": self.settings.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            self.settings.token_field: self.settings.max_output_tokens,
            "response_format": {"type": "json_object"},
        }
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        limits = HttpLimits(total=self.settings.timeout)
        url = f"{self.settings.base_url}/chat/completions"
        content = json.dumps(body).encode()
        send = partial(self.net.post, url, body=content, headers=headers, limits=limits)
        data = call_json(send, WHO, self.now, method="POST", url=url)
        return read_reply(data, system + user)

    def check_access(self) -> None:
        """A free request that needs the key. ProviderError `account` when the key is refused."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = f"{self.settings.base_url}/models"
        call_json(lambda: self.net.get(url, headers=headers), WHO, self.now, method="GET", url=url)

    def _price(self, tokens_in: int, tokens_out: int, rounded: Callable[[Decimal], Decimal]) -> Decimal:
        settings = self.settings
        return rounded(
            (settings.usd_per_million_input * tokens_in + settings.usd_per_million_output * tokens_out) / MILLION
        )


class UnusableReply(ProviderError):
    """A paid reply that cannot be used: cut off, refused, filtered or invalid. `reply` has its usage."""

    def __init__(self, message: str, code: str, reply: ModelReply) -> None:
        super().__init__(message, "refused", code)
        self.reply = reply


def read_reply(data: dict[str, Any], asked: str) -> ModelReply:
    """The text and usage of a response. Without `usage` the tokens are estimated, and `usage_known` is False."""
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message, usage = _mapping(choice, "message"), _mapping(data, "usage")
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    used_in, used_out = _tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens"))
    reply = ModelReply(
        text=text,
        model=plain_line(data.get("model"), 200),
        input_tokens=len(asked) // CHARACTERS_PER_TOKEN if used_in is None else used_in,
        output_tokens=len(text) // CHARACTERS_PER_TOKEN if used_out is None else used_out,
        usage_known=used_in is not None and used_out is not None,
    )
    if not choice:
        raise ProviderError(f"{WHO}: a response without choices", "unknown", "bad_answer")
    reason = choice.get("finish_reason")
    if message.get("refusal"):
        raise UnusableReply(f"{WHO} refused to answer", "model_refused", reply)
    if reason == "length":
        raise UnusableReply(f"{WHO}: the answer was cut off (raise max_output_tokens)", "truncated", reply)
    if reason == "content_filter":
        raise UnusableReply(f"{WHO}: the answer was filtered", "content_filter", reply)
    if not text.strip():
        raise UnusableReply(f"{WHO}: an empty answer", "empty_answer", reply)
    return reply


def _tokens(value: Any) -> int | None:
    """None for an impossible number: the price is calculated from it."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= MAX_TOKENS else None


def _mapping(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


class OpenAISummariser:
    """summarization.provider: openai"""

    name = "openai"

    def __init__(self, settings: OpenAISettings, prompts_dir: Path | None) -> None:
        self.model = settings.model
        self._words = settings.chunk_words
        names = ("summary", "merge", "concept", "implementation")
        self.prompts = {name: load_prompt(name, prompts_dir) for name in names}

    def changed(self, *, model: str | None, prompt: Path | None) -> "OpenAISummariser":
        """Another model's name, or another prompt for the summary; the rest is the same."""
        other = copy(self)
        other.model = model or self.model
        if prompt is not None:
            other.prompts = self.prompts | {"summary": load_prompt_file(prompt)}
        return other

    def write(self, source: SummaryInput, documents: tuple[str, ...], ask: AskModel) -> SummaryResult:
        parts = split_words(source.text, self._words)
        replies: list[ModelReply] = []

        def asked(part: str, prompt: str, user: str) -> ModelReply:
            focus = ", ".join(source.focus_areas) or "the most important points"
            # Not str.format: a prompt contains JSON, whose braces must stay.
            text = self.prompts[prompt].text.replace("{max_bullets}", str(source.bullets_wanted))
            form = f"\n{FORMS[source.summary_type]}" if prompt in ("summary", "merge") else ""
            form += f"\nWrite in this language: {source.language}." if source.language else ""
            replies.append(ask(part, text.replace("{focus_areas}", focus) + form, user))
            return replies[-1]

        head = f"Title: {source.title}\nChannel: {source.channel}\n\n"
        pieces = []
        for number, part in enumerate(parts, 1):
            user = f"{head}Transcript, part {number} of {len(parts)}:\n{part}"
            pieces.append(_validated(SummaryReply, asked(f"part-{number}", "summary", user)))
        summary = pieces[0] if len(pieces) == 1 else self._merge(head, pieces, asked)
        basis = parts[0] if len(parts) == 1 else _as_json(pieces)
        user = f"{head}Summary:\n{summary.model_dump_json()}\n\nTranscript or its parts:\n{basis}"
        made = {kind: _validated(MarkdownReply, asked(kind, kind, user)).markdown for kind in documents}
        used = (sum(reply.input_tokens for reply in replies), sum(reply.output_tokens for reply in replies))
        return SummaryResult(summary, replies[-1].model or self.model, made, *used)

    def _merge(self, head: str, pieces: list[SummaryReply], asked: AskModel) -> SummaryReply:
        """Merge groups of twenty until one is left: the parts of a long transcript do not fit into one request."""
        level = 0
        while len(pieces) > 1:
            level += 1
            groups = [pieces[at : at + 20] for at in range(0, len(pieces), 20)]
            pieces = [
                _validated(SummaryReply, asked(f"merge-{level}-{number}", "merge", f"{head}Parts:\n{_as_json(group)}"))
                for number, group in enumerate(groups, 1)
            ]
        return pieces[0]


def split_words(text: str, size: int) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + size]) for at in range(0, len(words), size)]


def _validated(model: type[Model], reply: ModelReply) -> Model:
    text = reply.text.strip()
    if text.startswith("```"):  # some models wrap their JSON in a code fence against the prompt
        text = text.strip("`").removeprefix("json").strip()
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, fault["loc"])) or "the whole" for fault in error.errors()[:3])
        raise UnusableReply(f"{WHO}: not the requested JSON ({fields})", "invalid_json", reply) from error


def _as_json(pieces: list[SummaryReply]) -> str:
    return json.dumps([piece.model_dump(mode="json") for piece in pieces], ensure_ascii=False)
