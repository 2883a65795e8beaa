"""The Reddit adapter: groups, posts of feed and API, gaps, refusals, filters, settings."""

import pytest
from pydantic import ValidationError

from csi.adapters.base import Member, Position, Tools
from csi.adapters.reddit import read_groups
from csi.adapters.reddit.settings import RedditSettings
from csi.adapters.reddit_subreddit import RedditAdapter, configured_plan, reference, sentence
from csi.errors import SourceError
from csi.scheduling import filters
from csi.simulator.reddit.site import RedditSite
from tests.fakes.reddit_net import RedditNet

NOW = 1_771_761_600.0
OAUTH = {"client_id_env": "RID", "client_secret_env": "RSECRET"}


class Clock:
    time = NOW

    def __call__(self) -> float:
        return self.time


def made(*names: str, **settings) -> tuple[RedditAdapter, RedditSite, Clock, list]:
    clock, refused = Clock(), []
    site = RedditSite(now=clock, per_minute=None)
    site.add(*names)
    tools = Tools(
        net=RedditNet(site),
        now=clock,
        spacing=lambda host: 61.0 if host == "reddit.com" else 1.0,
        secret={"RID": "id", "RSECRET": "secret"}.get,
        note_access=lambda name, error: refused.append((name, error)),
    )
    block = {"subreddits": [{"name": name} for name in names], **settings}
    return RedditAdapter(block, tools), site, clock, refused


def read(adapter, *refs: str, states=None):
    positions = [Position(ref, state=(states or {}).get(ref, {}), last_success_at=NOW - 180) for ref in refs]
    members = [Member(ref, 180.0, (states or {}).get(ref, {})) for ref in refs]
    return adapter.read_group(positions, members)


def test_fifty_subreddits_are_three_groups_each_every_three_minutes():
    settings = RedditSettings(subreddits=[{"name": f"sub_{n:02}"} for n in range(50)])
    text = sentence(configured_plan(settings, 61.0), 61.0)
    assert text.startswith("50 subreddits in 3 groups, each every 3 min (one request every 61 s)")
    assert "no posts are missed" in text


def test_busy_members_are_kept_apart_and_an_overflow_is_told():
    rates = {"busy": 0.3, **{f"quiet{n}": 0.0001 for n in range(20)}}
    plan = read_groups.plan(rates, 180, 61, 100)
    assert plan.is_safe
    assert sum(map(len, plan.groups)) == 21
    flood = read_groups.plan({f"s{n}": 0.1 for n in range(50)}, 180, 61, 100)
    assert flood.filled > 1
    assert read_groups.plan({}, 180, 61, 100).groups == ()


def test_free_slots_make_windows_that_reach_posts_approved_late():
    rates = {f"s{n:02}": 12 / 60 / 50 for n in range(50)}  # 100 posts of all of them are listed for 8 minutes
    plan = read_groups.plan(rates, 180, 61, 100)
    assert len(plan.groups) == 3
    assert plan.seconds / plan.filled > 20 * 60
    assert len(read_groups.plan({f"s{n}": 0.0001 for n in range(12)}, 180, 61, 100).groups) == 1


@pytest.mark.parametrize("more", [{}, OAUTH])
def test_a_post_gives_the_same_key_and_id_from_feed_and_api(more):
    adapter, site, _, _ = made("python", "rust", **more)
    post = site.publish("Python".lower(), self_text="Hello <b>", at=NOW - 60)
    other = site.publish("rust", at=NOW - 50, flair="news", score=7)
    results = read(adapter, "python", "rust")
    (one,), (two,) = (results[ref].items for ref in ("python", "rust"))
    event = adapter.normalize(one)
    assert (adapter.item_key(one), event.dedupe_key) == (f"reddit:post:{post.id}",) * 2
    assert event.event_id == f"src:reddit:{post.id}:{int(NOW - 60)}"
    assert (event.event_type, event.source) == ("subreddit_new_post", "reddit_subreddit")
    assert (event.subject["is_self"], event.subject["text"], event.subject["author"]) == (True, "Hello <b>", "writer")
    linked = adapter.normalize(two).subject
    assert (linked["link_url"], linked["domain"]) == (f"https://example.org/{other.id}", "example.org")
    assert ("flair" in linked) == bool(more)
    assert all(path.endswith(".rss") != bool(more) for _, path, _ in site.asked)


def test_a_window_that_overflowed_is_read_further_back():
    adapter, site, clock, _ = made("aa", "bb")
    read(adapter, "aa", "bb")
    for second in range(250):
        site.publish("aa" if second % 5 else "bb", at=NOW + second)
    clock.time = NOW + 300
    states = {ref: {"read_at": NOW} for ref in ("aa", "bb")}
    seen, pages = set(), 0
    while True:
        results = read(adapter, "aa", "bb", states=states)
        pages += 1
        seen |= {adapter.item_key(item) for result in results.values() for item in result.items}
        states = {ref: dict(result.state) for ref, result in results.items()}
        if not any("gap" in state for state in states.values()):
            break
        members = [Member(ref, 180.0, states[ref]) for ref in ("aa", "bb")]
        assert set(adapter.group_of("aa", members)) == {"aa", "bb"}
    assert (len(seen), pages) == (250, 3)
    assert all(result.missed_since is None for result in results.values())


def test_posts_listed_a_minute_late_inside_a_burst_are_found():
    """Five posts a second: at the next read a late one is 250 posts behind the newest one that was known."""
    adapter, site, clock, _ = made("aa")
    for tenth in range(0, 1200, 2):
        at = NOW + tenth / 10
        site.publish("aa", at=at, late=60.0 if tenth % 50 == 0 else 0.0)
    states, seen = {"aa": {"read_at": NOW}}, set()
    for moment in range(60, 240, 5):
        clock.time = NOW + moment
        result = read(adapter, "aa", states=states)["aa"]
        assert result.missed_since is None
        seen |= {adapter.item_key(item) for item in result.items}
        states = {"aa": dict(result.state)}
    assert seen == {f"reddit:post:{post.id}" for post in site.posts["aa"]}


def test_more_than_a_thousand_posts_are_reported_as_missed():
    adapter, site, clock, _ = made("aa")
    for second in range(1500):
        site.publish("aa", at=NOW + second / 10)
    clock.time = NOW + 200
    states = {"aa": {"read_at": NOW}}
    for _ in range(12):
        result = read(adapter, "aa", states=states)["aa"]
        states = {"aa": dict(result.state)}
        if result.missed_since is not None:
            break
    assert result.missed_since == NOW


def test_a_late_approval_is_new_and_no_gap():
    adapter, site, clock, _ = made("aa")
    site.publish("aa", at=NOW - 90_000, late=90_010)
    site.publish("aa", at=NOW - 10)
    clock.time = NOW + 60
    result = read(adapter, "aa", states={"aa": {"read_at": NOW}})["aa"]
    assert len(result.items) == 2
    assert "gap" not in result.state


@pytest.mark.parametrize(
    ("ill", "kind", "words"),
    [("banned", "missing", "banned"), ("private", "denied", "private"), ("misspelt", "missing", "does not exist")],
)
def test_an_unreadable_subreddit_is_left_out_of_a_group_and_explained_alone(ill, kind, words):
    adapter, site, clock, _ = made("good", "bad")
    if ill == "misspelt":
        del site.posts["bad"]
    else:
        getattr(site, ill).add("bad")
    site.publish("good", at=NOW - 5)
    results = read(adapter, "good", "bad")
    assert (len(results["good"].items), results["bad"].items) == (1, ())
    state = dict(results["bad"].state)
    clock.time += 400
    members = [Member("good", 180.0, dict(results["good"].state)), Member("bad", 180.0, state)]
    assert adapter.group_of("bad", members) == ("bad",)  # silent since it is watched
    alone = read(adapter, "bad")["bad"]
    assert isinstance(alone, SourceError)
    assert (alone.kind, words in str(alone)) == (kind, True)
    assert alone.retry_after
    broken = [members[0], Member("bad", 180.0, state, error_kind=kind)]
    assert adapter.group_of("good", broken) == ("good",)


def test_a_renamed_subreddit_names_its_new_name():
    adapter, site, _, _ = made("old", "newname")
    site.renamed["old"] = "newname"
    error = read(adapter, "old")["old"]
    assert isinstance(error, SourceError)
    assert "renamed to r/newname" in str(error)


def test_a_403_of_a_group_is_about_our_address():
    adapter, site, _, _ = made("aa", "bb")
    site.blocked = True
    assert {error.kind for error in read(adapter, "aa", "bb").values()} == {"throttled"}


def test_refused_credentials_are_reported_once_and_the_feed_is_read():
    adapter, site, clock, refused = made("aa", "bb", **OAUTH)
    site.publish("aa", at=NOW - 5)
    assert adapter.paced_as("aa") == "oauth.reddit.com"
    site.accepts_key = False
    assert len(read(adapter, "aa", "bb")["aa"].items) == 1
    assert [name for name, error in refused if error] == ["reddit_oauth"]
    assert adapter.paced_as("aa") == "reddit.com"
    read(adapter, "aa", "bb")
    assert len(refused) == 1
    site.accepts_key, clock.time = True, NOW + 3601
    read(adapter, "aa", "bb")
    assert refused[-1] == ("reddit_oauth", None)


def test_filters_of_the_feed_and_of_oauth():
    settings = RedditSettings(
        exclude_authors=["u/Bot"], domains=["example.org"], min_score=5, nsfw="exclude", posts=["link"], **OAUTH
    )
    rule = filters.load(__import__("json").dumps(settings.filters_of()))
    base = {"author": "writer", "domain": "example.org", "score": 9, "nsfw": False, "is_self": False}

    def verdict(**more):
        return filters.wanted(rule, filters.facts_of({**base, **more}))

    assert verdict() == "wanted"
    assert verdict(author="bot") == "unwanted"
    assert verdict(domain="other.org") == "unwanted"
    assert verdict(score=1) == "not_yet"
    assert verdict(nsfw=True) == verdict(is_self=True) == "unwanted"
    assert verdict(score=None, nsfw=None) == "wanted"


@pytest.mark.parametrize(
    "key", [{"min_score": 3}, {"nsfw": "exclude"}, {"subreddits": [{"name": "a1", "flairs": ["x"]}]}]
)
def test_filters_that_only_oauth_knows_are_refused_without(key):
    with pytest.raises(ValidationError, match="needs OAuth"):
        RedditSettings(**key)
    RedditSettings(**key, **OAUTH)


def test_names_and_addresses():
    assert RedditSettings(subreddits=[{"name": "r/Python"}]).subreddits[0].ref == "python"
    for bad in ("", "a b", "python!", "x" * 30, "a+b"):
        with pytest.raises(ValidationError):
            RedditSettings(subreddits=[{"name": bad}])
    assert reference("r/Python") == reference("https://www.reddit.com/r/Python/new/") == "Python"
    assert reference("https://example.org/r/python") is None
    assert reference("@someone") is None
    for text in ("r/no such", "r/x", "https://www.reddit.com/r/no-such/", "https://reddit.com/r/"):
        with pytest.raises(SourceError, match=r"no subreddit: .* 2 to 21 letters, digits and underscores"):
            reference(text)


def test_the_prds_block_loads_as_written():
    block = {
        "enabled": True, "priority": "high_volume", "poll_interval_seconds": 180, "streaming_mode": True,
        "max_concurrent_events": 10,
    }  # fmt: skip
    assert RedditSettings.model_validate(block).subreddits == ()
