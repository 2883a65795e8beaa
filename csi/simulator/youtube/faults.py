"""Fault scripts: their grammar, and the decision which fault a request gets.

    script  := rule ("," rule)*                feed:404@10-40, api:slow=2s%30, night
    rule    := target ["/" id] ":" action suffix*   |   preset ["@" window]
    target  := any | feed | api | playlistItems | videos | channels | playlists | batchGetStats
    action  := 400…599 ["=" Retry-After]  | slow=DURATION | drip[=DURATION] | redirect[=URL]
             | reset | cut | hang | html | empty | truncated | bomb | attributes | deep | gzip
             | noentries (a feed without its entries) | stale (the feed as it was served last)
             | an API reason, as in quotaExceeded (not for feeds)
    suffix  := "%" percent of the requests  | "#" percent of the ids, always the same ones
             | "+" requests that pass first | "*" how many are hit   | "@" window
    window  := [from] "-" [to], in seconds since the start, or with a unit: @10-40, @20-, @5m-1h

The first rule that applies decides. `slow` only adds its delay; the rules after it are still tried.
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
API_TARGETS = ("playlistItems", "videos", "channels", "playlists", "batchGetStats")
TARGETS = ("any", FEED, "api", *API_TARGETS)

PLAIN: tuple[str, ...] = (
    *("reset", "cut", "hang", "html", "empty", "truncated", "bomb", "attributes", "deep", "gzip"),
    *("noentries", "stale"),
)
PRESETS = {
    "night": ("feed:404#40@15-75", "40 % of the channels answer 404 for a minute"),
    "storm": (
        "any:500%1,any:reset%1,any:slow=2s%1,feed:404%1,feed:truncated%1,api:503=2%1,api:429=2%1",
        "about 5 % of all requests go wrong, each in its own way",
    ),
}
FOREVER = float("inf")
DRIP = 0.2  # seconds between two pieces of the body

_RULE = re.compile(r"(?P<target>[A-Za-z]+)(?:/(?P<ref>[\w-]+))?:(?P<action>[^%#+*@]+)(?P<suffixes>.*)")
_SUFFIX = re.compile(r"([%#+*@])([^%#+*@]*)")
_PRESET = re.compile(r"(?P<name>[a-z]+)(?:@(?P<window>.*))?")


class FaultScriptError(CsiError):
    """A part of a fault script cannot be read."""

    exit_code = 2

    def __init__(self, piece: str, problem: str) -> None:
        super().__init__(f"fault {piece!r}: {problem}")


@dataclass(frozen=True)
class RequestTarget:
    """What a request reads: `target` is `feed` or an API endpoint, `ref` the channel or list id, if there is one."""

    target: str
    ref: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens to a request. An empty `name` means a correct response after `delay`."""

    name: str = ""
    delay: float = 0.0
    status: int | None = None
    retry_after: int | None = None
    pace: float = DRIP
    location: str | None = None

    @property
    def harmless(self) -> bool:
        """The body is the correct one, if it arrives in full."""
        return self.name in ("", "drip")


@dataclass(frozen=True)
class FaultRule:
    """One rule of a script."""

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

    def matches(self, request: RequestTarget, t: float) -> bool:
        """Target, id and time match. `share`, `skip` and `times` are checked afterwards."""
        family = "api" if request.target in API_TARGETS else request.target
        return (
            self.start <= t < self.end
            and self.target in ("any", request.target, family)
            and self.ref in (None, request.ref)
            and (self.share_of_ids >= 1 or id_fraction(request.ref) < self.share_of_ids)
        )


FaultScript = tuple[FaultRule, ...]


def decide(
    script: FaultScript, request: RequestTarget, t: float, draw: Callable[[], float], counts: Sequence[int]
) -> tuple[Fault, tuple[int, ...]]:
    """The fault, and the positions of all rules that matched; the caller counts a request for each of them.

    Pure: `draw` gives a random number in [0, 1), `counts[i]` is how many requests rule i has matched before.
    """
    matched = tuple(position for position, rule in enumerate(script) if rule.matches(request, t))
    delay = 0.0
    for position in matched:
        rule, count = script[position], counts[position]
        if count < rule.skip or (rule.times is not None and count >= rule.skip + rule.times):
            continue
        if rule.share < 1 and draw() >= rule.share:
            continue
        delay += rule.fault.delay
        if rule.fault.name:
            return replace(rule.fault, delay=delay), matched
    return Fault(delay=delay), matched


def read_script(text: str, *, later: float = 0.0) -> FaultScript:
    """The rules of a script; FaultScriptError names the part that cannot be read. `later` shifts every window."""
    rules: list[FaultRule] = []
    for piece in (piece.strip() for piece in text.split(",") if piece.strip()):
        preset = _PRESET.fullmatch(piece)
        if not preset:
            rules.append(_read_rule(piece))
            continue
        if preset["name"] not in PRESETS:
            raise FaultScriptError(piece, f"no such preset; known are {', '.join(PRESETS)}; a rule is target:action")
        read = [_read_rule(part) for part in PRESETS[preset["name"]][0].split(",")]
        rules += [_with_suffix(rule, "@", preset["window"]) for rule in read] if preset["window"] else read
    return tuple(replace(rule, start=rule.start + later, end=rule.end + later) for rule in rules)


def id_fraction(ref: str) -> float:
    """A number between 0 and 1 that is the same for the same id in every run and process."""
    return int.from_bytes(hashlib.blake2b(ref.encode(), digest_size=4).digest()) / 2**32


def _read_rule(piece: str) -> FaultRule:
    match = _RULE.fullmatch(piece)
    if not match:
        raise FaultScriptError(piece, "expected target:action, as in feed:404@10-40 or api:slow=2s")
    target = match["target"]
    if target not in TARGETS:
        raise FaultScriptError(piece, f"no target {target!r}; known are {', '.join(TARGETS)}")
    rule = FaultRule(piece, target, _read_action(match["action"].strip(), target, piece), match["ref"])
    for sign, value in _SUFFIX.findall(match["suffixes"]):
        rule = _with_suffix(rule, sign, value.strip())
    return rule


def _read_action(action: str, target: str, piece: str) -> Fault:
    name, _, value = action.partition("=")
    if name.isdecimal():
        if not 400 <= int(name[:9]) <= 599:
            raise FaultScriptError(piece, "a status must be from 400 to 599")
        if value and not value.isdecimal():
            raise FaultScriptError(piece, "Retry-After is whole seconds, as in 429=30")
        return Fault("status", status=int(name), retry_after=int(value) if value else None)
    if name == "slow":
        return Fault(delay=_seconds(value, piece))
    if name == "drip":
        return Fault("drip", pace=_seconds(value, piece) if value else DRIP)
    if name == "redirect":
        if value and urlsplit(value).scheme not in ("", "http", "https", "file"):
            raise FaultScriptError(piece, "a redirect goes to a path or a URL")
        return Fault("redirect", location=value or None)
    if name in PLAIN and not value:
        return Fault(name)
    if name in REASONS and not value:
        if target in ("any", FEED):
            raise FaultScriptError(piece, f"feeds have no reasons; write api:{name}")
        return Fault(name, status=REASONS[name].code)
    known = ("404", "slow=2s", "drip", "redirect", *PLAIN, "quotaExceeded")
    raise FaultScriptError(piece, f"no action {action!r}; known are {', '.join(known)} and other API reasons")


def _with_suffix(rule: FaultRule, sign: str, value: str) -> FaultRule:
    match sign:
        case "%":
            return replace(rule, share=_percent(value, rule.text))
        case "#":
            return replace(rule, share_of_ids=_percent(value, rule.text))
        case "+":
            return replace(rule, skip=_count(value, rule.text))
        case "*":
            return replace(rule, times=_count(value, rule.text))
    first, dash, last = value.partition("-")
    if not dash:
        raise FaultScriptError(rule.text, "a window is @10-40, @10- or @-40")
    start = _seconds(first, rule.text) if first else 0.0
    end = _seconds(last, rule.text) if last else FOREVER
    if end <= start:
        raise FaultScriptError(rule.text, "the window ends before it begins")
    return replace(rule, start=start, end=end)


def _percent(value: str, piece: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise FaultScriptError(piece, f"{value!r} is not a percentage from 0 to 100")
    return number / 100


def _count(value: str, piece: str) -> int:
    if not value.isdecimal():
        raise FaultScriptError(piece, f"{value!r} is not a number of requests")
    return int(value)


def _seconds(value: str, piece: str) -> float:
    try:
        return float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else parse_duration(value)
    except ValueError as error:
        raise FaultScriptError(piece, str(error)) from error
