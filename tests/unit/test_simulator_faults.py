"""The fault script: its grammar as a table, and the decision."""

from random import Random

import pytest

from csi.simulator.youtube.api_errors import REASONS
from csi.simulator.youtube.faults import (
    FOREVER,
    Fault,
    FaultScript,
    FaultScriptError,
    RequestTarget,
    decide,
    read_script,
)

FEED = RequestTarget("feed", "UC1")
LIST = RequestTarget("playlistItems", "PL1")


def ask(
    script: str | FaultScript, request_target: RequestTarget = FEED, t: float = 0.0, draw: float = 0.0, seen: int = 0
) -> Fault:
    rules = read_script(script) if isinstance(script, str) else script
    return decide(rules, request_target, t, lambda: draw, [seen] * len(rules))[0]


@pytest.mark.parametrize(
    ("script", "request_target", "t", "expected"),
    [
        ("", FEED, 0, Fault()),
        ("feed:404", FEED, 0, Fault("status", status=404)),
        ("feed:404", LIST, 0, Fault()),
        ("feed:404@10-40", FEED, 9.9, Fault()),
        ("feed:404@10-40", FEED, 10, Fault("status", status=404)),
        ("feed:404@10-40", FEED, 40, Fault()),
        ("feed:404@-5", FEED, 4, Fault("status", status=404)),
        ("feed:404@1m-2m", FEED, 61, Fault("status", status=404)),
        ("api:quotaExceeded@20-", LIST, 1e9, Fault("quotaExceeded", status=403)),
        ("api:quotaExceeded@20-", FEED, 30, Fault()),
        ("playlistItems:503=7", LIST, 0, Fault("status", status=503, retry_after=7)),
        ("videos:503", LIST, 0, Fault()),
        ("any:429=30@5-15", LIST, 6, Fault("status", status=429, retry_after=30)),
        ("any:429=30@5-15", FEED, 6, Fault("status", status=429, retry_after=30)),
        ("api:slow=2s", LIST, 0, Fault(delay=2.0)),
        ("any:slow=2s, any:slow=500ms, any:reset", LIST, 0, Fault("reset", delay=2.5)),
        ("any:reset,any:404", FEED, 0, Fault("reset")),
        ("feed:drip", FEED, 0, Fault("drip", pace=0.2)),
        ("feed:drip=10ms", FEED, 0, Fault("drip", pace=0.01)),
        ("feed/UC1:empty", FEED, 0, Fault("empty")),
        ("feed/UC2:empty", FEED, 0, Fault()),
        ("feed:redirect", FEED, 0, Fault("redirect")),
        ("feed:redirect=http://127.0.0.1:9/x", FEED, 0, Fault("redirect", location="http://127.0.0.1:9/x")),
        (" feed:html , ", FEED, 0, Fault("html")),
        ("night@0-", RequestTarget("feed", "none"), 0, Fault()),
    ],
)
def test_scripts_and_their_faults(script: str, request_target: RequestTarget, t: float, expected: Fault) -> None:
    assert ask(script, request_target, t) == expected


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("404", "expected target:action"),
        ("noon", "no such preset"),
        ("feeds:404", "no target 'feeds'"),
        ("feed:explode", "no action 'explode'"),
        ("feed:200", "from 400 to 599"),
        ("feed:429=soon", "whole seconds"),
        ("feed:404%130", "percentage"),
        ("feed:404%x", "percentage"),
        ("feed:404@10", "a window is"),
        ("feed:404@40-10", "ends before it begins"),
        ("feed:404@a-b", "is not a duration"),
        ("feed:404*x", "number of requests"),
        ("api:slow", "is not a duration"),
        ("api:slow=fast", "is not a duration"),
        ("feed:quotaExceeded", "write api:quotaExceeded"),
        ("any:quotaExceeded", "write api:quotaExceeded"),
        ("feed:redirect=gopher://x", "a path or a URL"),
        ("api:reset=3", "no action 'reset=3'"),
    ],
)
def test_a_bad_script_is_an_error_that_names_the_part_and_the_remedy(script: str, message: str) -> None:
    with pytest.raises(FaultScriptError, match=message):
        read_script(f"feed:500,{script}")


def test_a_share_of_requests_is_drawn() -> None:
    assert ask("feed:500%30", draw=0.29).name == "status"
    assert ask("feed:500%30", draw=0.30).name == ""
    random, rules = Random(1), read_script("feed:500%30")
    hits = sum(decide(rules, FEED, 0, random.random, [0])[0].name == "status" for _ in range(2000))
    assert 500 < hits < 700


def test_a_share_of_ids_always_selects_the_same_ids() -> None:
    refs = [RequestTarget("feed", f"UC{number}") for number in range(1000)]
    hit = [request_target.ref for request_target in refs if ask("feed:404#40", request_target, draw=0.99).name]
    assert 350 < len(hit) < 450
    assert hit == [request_target.ref for request_target in refs if ask("feed:404#40", request_target).name]


def test_skipping_and_counting_hit_the_second_request_only() -> None:
    names = [ask("playlistItems:500+1*1", LIST, seen=number).name for number in range(4)]
    assert names == ["", "status", "", ""]


def test_a_decision_lists_the_rules_that_matched() -> None:
    rules = read_script("feed:404%0,api:500,any:slow=1s")
    assert decide(rules, FEED, 0, lambda: 0.5, [0, 0, 0])[1] == (0, 2)


def test_presets_and_later_windows() -> None:
    (night,) = read_script("night")
    assert (night.start, night.end, night.share_of_ids) == (15, 75, 0.4)
    (shifted,) = read_script("night@0-60", later=100)
    assert (shifted.start, shifted.end) == (100, 160)
    assert all(rule.end == FOREVER and rule.share == 0.01 for rule in read_script("storm"))


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_api_reason_can_be_scripted(reason: str) -> None:
    assert ask(f"api:{reason}", LIST).name == reason
