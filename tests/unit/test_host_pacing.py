"""How far apart requests to a host are, and what its answers teach."""

import pytest

from csi.config.settings import HostSettings
from csi.scheduling.host_pacing import Pace, domain_of, hold_seconds, is_refusal, narrowed, pace_of, widened


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.reddit.com", "reddit.com"),
        ("old.Reddit.com:443", "reddit.com"),
        ("news.bbc.co.uk", "bbc.co.uk"),
        ("alice.github.io", "alice.github.io"),
        ("127.0.0.1:8100", "127.0.0.1:8100"),
        ("[::1]:8100", "[::1]:8100"),
        ("localhost:8100", "localhost:8100"),
        ("github.io", "github.io"),
        ("", ""),
    ],
)
def test_hosts_of_one_registrable_domain_share_a_pace(host, domain):
    assert domain_of(host) == domain


def test_the_default_for_reddit_is_one_request_in_61_seconds_and_none_for_youtube():
    assert pace_of("www.reddit.com", {}) == Pace("reddit.com", 61.0, 1)
    assert pace_of("oauth.reddit.com", {}).spacing == 1.0
    assert pace_of("www.youtube.com", {}) == Pace("youtube.com", learns=False)
    assert pace_of("blog.example.org", {}) == Pace("example.org")


def test_a_configured_host_wins_over_its_domain_and_keeps_other_defaults():
    configured = {"reddit.com": HostSettings(min_spacing_seconds=90), "a.example.org": HostSettings(max_concurrent=2)}
    assert pace_of("www.reddit.com", configured) == Pace("reddit.com", 90.0, 1)
    assert pace_of("a.example.org", configured) == Pace("a.example.org", 0.0, 2)
    assert pace_of("b.example.org", configured) == Pace("example.org")


def test_refusals_widen_and_successes_narrow_slowly():
    assert [widened(0, 0), widened(1, 0), widened(40, 0), widened(60, 0)] == [1, 2, 60, 60]
    assert [widened(61, 61), widened(244, 61), widened(488, 61)] == [122, 488, 488]
    assert narrowed(122, 61) == pytest.approx(109.8)
    assert narrowed(65, 61) is None
    assert narrowed(0.5, 0) is None


def test_a_403_is_a_refusal_only_where_a_spacing_is_configured():
    assert is_refusal(429, 0)
    assert is_refusal(403, 61)
    assert not is_refusal(403, 0)


NOW = 1_771_761_600.0
"""2026-02-22T12:00:00Z"""


@pytest.mark.parametrize(
    ("headers", "refused", "seconds"),
    [
        ({}, True, None),
        ({"retry-after": "0"}, True, 0),
        ({"retry-after": "120"}, True, 120),
        ({"retry-after": "Sun, 22 Feb 2026 12:03:00 GMT"}, True, 180),
        ({"retry-after": "Sun, 22 Feb 2026 11:00:00 GMT"}, True, 0),
        ({"retry-after": "soon"}, True, None),
        ({"x-ratelimit-reset": "30", "retry-after": "5"}, True, 30),
        ({"x-ratelimit-remaining": "0.0", "x-ratelimit-reset": "30"}, False, 30),
        ({"x-ratelimit-remaining": "599.0", "x-ratelimit-reset": "30"}, False, None),
        ({"x-ratelimit-remaining": "nan", "x-ratelimit-reset": "inf"}, False, None),
        ({"retry-after": "99999999"}, True, 3600),
        ({"retry-after": "120"}, False, None),
    ],
)
def test_headers_tell_how_long_the_host_wants_no_request(headers, refused, seconds):
    assert hold_seconds(headers, 61.0, NOW, refused=refused) == seconds
