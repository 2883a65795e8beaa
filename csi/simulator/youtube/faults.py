"""Faults by script: a small grammar, and the pure decision what happens to one request.

    script  := rule ("," rule)*                feed:404@10-40, api:slow=2s%30, night
    rule    := target ["/" id] ":" action suffix*   |   preset ["@" window]
    target  := any | feed | api | playlistItems | videos | channels | playlists
    action  := 400…599 ["=" Retry-After]  | slow=DURATION | drip[=DURATION] | redirect[=URL]
             | reset | cut | hang | html | empty | truncated | bomb | attributes | deep | gzip
             | an API reason, as in quotaExceeded (not for feeds)
    suffix  := "%" percent of the requests  | "#" percent of the ids, always the same ones
             | "+" requests that pass first | "*" how many are hit   | "@" window
    window  := [from] "-" [to], in seconds since the start, or with a unit: @10-40, @20-, @5m-1h

The first rule that applies wins; `slow` adds up and lets the next rule speak.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from csi.config.durations import parse_duration
from csi.errors import CsiError
from csi.simulator.youtube.api_errors import REASONS

FEED = "feed"
API_TARGETS = ("playlistItems", "videos", "channels", "playlists")
TARGETS = ("any", FEED, "api", *API_TARGETS)

PLAIN: tuple[str, ...] = (
    "reset",
    "cut",
    "hang",
    "html",
    "empty",
    "truncated",
    "bomb",
    "attributes",
    "deep",
    "gzip",
)
PRESETS = {
    "night": ("feed:404#40@15-75", "40 % of the channels answer 404 for a minute"),
    "storm": (
        "any:500%1,any:reset%1,any:slow=2s%1,feed:404%1,feed:truncated%1,api:503=2%1,api:429=2%1",
        "about 5 % of all requests go wrong, each in its own way",
    ),
}
FOREVER = float("inf")
DRIP = 0.2  # seconds between two drops

_RULE = re.compile(r"(?P<target>[A-Za-z]+)(?:/(?P<ref>[\w-]+))?:(?P<action>[^%#+*@]+)(?P<suffixes>.*)")
_SUFFIX = re.compile(r"([%#+*@])([^%#+*@]*)")
_PRESET = re.compile(r"(?P<name>[a-z]+)(?:@(?P<window>.*))?")


class FaultScriptError(CsiError):
    """A fault script that cannot be read."""

    exit_code = 2


@dataclass(frozen=True)
class RequestTarget:
    """Who is asked for what: `target` is `feed` or an endpoint, `ref` a channel, a list or nothing."""

    target: str
    ref: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens to a request. `name` is empty where nothing does, apart from the delay."""

    name: str = ""
    delay: float = 0.0
    status: int | None = None
    retry_after: int | None = None
    pace: float = DRIP
    location: str | None = None

    @property
    def harmless(self) -> bool:
        """The answer, when it arrives in full, is the true one."""
        return self.name in ("", "drip")


@dataclass(frozen=True)
class FaultRule:
    """One line of a script, read."""

    text: str
    target: str
    fault: Fault
    ref: str | None = None
    share: float = 1.0
    share_of_ids: float = 1.0
    skip: int = 0
    times: int | None = None
    start: float = 0.0
    end: float = FOREVER

    def concerns(self, asked: RequestTarget, t: float) -> bool:
        """Right target, right id, right time. Chance and counting come after."""
        return (
            self.start <= t < self.end
            and self.target in ("any", asked.target, _family(asked.target))
            and self.ref in (None, asked.ref)
            and (self.share_of_ids >= 1 or id_fraction(asked.ref) < self.share_of_ids)
        )

    def counts_in(self, seen: int) -> bool:
        return seen >= self.skip and (self.times is None or seen < self.skip + self.times)


FaultScript = tuple[FaultRule, ...]


@dataclass(frozen=True)
class FaultDecision:
    """The fault, and which rules this request concerned (their counters go up)."""

    fault: Fault
    concerned: tuple[int, ...]


def decide(
    script: FaultScript, asked: RequestTarget, t: float, draw: Callable[[], float], seen: Sequence[int]
) -> FaultDecision:
    """Pure: `draw` gives the chance in [0, 1), `seen[i]` how many requests rule i concerned before."""
    concerned = tuple(place for place, rule in enumerate(script) if rule.concerns(asked, t))
    delay = 0.0
    for place in concerned:
        rule = script[place]
        if not rule.counts_in(seen[place]) or (rule.share < 1 and draw() >= rule.share):
            continue
        delay += rule.fault.delay
        if rule.fault.name:
            return FaultDecision(replace(rule.fault, delay=delay), concerned)
    return FaultDecision(Fault(delay=delay), concerned)


def read_script(text: str, *, later: float = 0.0) -> FaultScript:
    """The rules of a script; ScriptError names the piece it cannot read. `later` moves every window."""
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    rules = [rule for piece in pieces for rule in _read_piece(piece)]
    return tuple(replace(rule, start=rule.start + later, end=rule.end + later) for rule in rules)


def _read_piece(piece: str) -> list[FaultRule]:
    preset = _PRESET.fullmatch(piece)
    if not preset:
        return [_read_rule(piece)]
    if preset["name"] not in PRESETS:
        raise FaultScriptError(
            f"fault {piece!r}: no such preset; known are {', '.join(PRESETS)}; a rule is target:action"
        )
    rules = [_read_rule(part) for part in PRESETS[preset["name"]][0].split(",")]
    return [_read_suffix(rule, "@", preset["window"]) for rule in rules] if preset["window"] else rules


def _read_rule(piece: str) -> FaultRule:
    match = _RULE.fullmatch(piece)
    if not match:
        raise FaultScriptError(f"fault {piece!r}: expected target:action, as in feed:404@10-40 or api:slow=2s")
    target = match["target"]
    if target not in TARGETS:
        raise FaultScriptError(f"fault {piece!r}: no target {target!r}; known are {', '.join(TARGETS)}")
    rule = FaultRule(piece, target, _read_action(match["action"].strip(), target, piece), match["ref"])
    suffixes = _SUFFIX.findall(match["suffixes"])
    for sign, value in suffixes:
        rule = _read_suffix(rule, sign, value.strip())
    return rule


def _read_action(action: str, target: str, piece: str) -> Fault:
    name, _, value = action.partition("=")
    if name.isdecimal():
        return _read_status(name, value, piece)
    if name in ("slow", "drip", "redirect"):
        return _read_valued(name, value, piece)
    if name in PLAIN and not value:
        return Fault(name)
    if name in REASONS and not value:
        return _read_reason(name, target, piece)
    known = ("404", "slow=2s", "drip", "redirect", *PLAIN, "quotaExceeded")
    raise FaultScriptError(f"fault {piece!r}: no action {action!r}; known are {', '.join(known)} and other API reasons")


def _read_status(name: str, value: str, piece: str) -> Fault:
    if not 400 <= int(name[:9]) <= 599:
        raise FaultScriptError(f"fault {piece!r}: a status must be from 400 to 599")
    if value and not value.isdecimal():
        raise FaultScriptError(f"fault {piece!r}: Retry-After is whole seconds, as in 429=30")
    return Fault("status", status=int(name), retry_after=int(value) if value else None)


def _read_valued(name: str, value: str, piece: str) -> Fault:
    if name == "slow":
        return Fault(delay=_seconds(value, piece))
    if name == "drip":
        return Fault("drip", pace=_seconds(value, piece) if value else DRIP)
    if value and urlsplit(value).scheme not in ("", "http", "https", "file"):
        raise FaultScriptError(f"fault {piece!r}: a redirect goes to a path or a URL")
    return Fault("redirect", location=value or None)


def _read_reason(name: str, target: str, piece: str) -> Fault:
    if target in ("any", FEED):
        raise FaultScriptError(f"fault {piece!r}: feeds have no reasons; write api:{name}")
    return Fault(name, status=REASONS[name].code)


def _read_suffix(rule: FaultRule, sign: str, value: str) -> FaultRule:
    match sign:
        case "%":
            return replace(rule, share=_percent(value, rule.text))
        case "#":
            return replace(rule, share_of_ids=_percent(value, rule.text))
        case "+":
            return replace(rule, skip=_count(value, rule.text))
        case "*":
            return replace(rule, times=_count(value, rule.text))
        case _:
            start, end = _window(value, rule.text)
            return replace(rule, start=start, end=end)


def _percent(value: str, piece: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise FaultScriptError(f"fault {piece!r}: {value!r} is not a percentage from 0 to 100")
    return number / 100


def _count(value: str, piece: str) -> int:
    if not value.isdecimal():
        raise FaultScriptError(f"fault {piece!r}: {value!r} is not a number of requests")
    return int(value)


def _window(value: str, piece: str) -> tuple[float, float]:
    first, dash, last = value.partition("-")
    if not dash:
        raise FaultScriptError(f"fault {piece!r}: a window is @10-40, @10- or @-40")
    start = _seconds(first, piece) if first else 0.0
    end = _seconds(last, piece) if last else FOREVER
    if end <= start:
        raise FaultScriptError(f"fault {piece!r}: the window ends before it begins")
    return start, end


def _seconds(value: str, piece: str) -> float:
    try:
        return float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else parse_duration(value)
    except ValueError as error:
        raise FaultScriptError(f"fault {piece!r}: {error}") from error


def _family(target: str) -> str:
    return "api" if target in API_TARGETS else target


def id_fraction(ref: str) -> float:
    """Where an id stands between 0 and 1, the same in every run and process."""
    return int.from_bytes(hashlib.blake2b(ref.encode(), digest_size=4).digest()) / 2**32
