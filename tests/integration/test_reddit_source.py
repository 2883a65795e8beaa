"""The source `reddit_subreddit` through the whole pipeline, against a simulated Reddit with the real limits."""

import random
from itertools import pairwise

import pytest

from csi.admin import watches as watch_actions
from csi.pipeline import poll
from csi.simulator.reddit.app import reddit_app
from csi.simulator.reddit.site import RedditSite
from csi.status import host_pace
from csi.store import api_refusals, db, host_pacing, watches
from csi.store.models import Watch
from tests.fakes.background_server import serve_in_background
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.simulated_reddit import HOUR, SLOT, answered, busy_time, expected, keys, reddit


def test_subreddits_are_read_together_and_every_post_becomes_one_event(tmp_path, clock):
    names = [f"sub_{number:02}" for number in range(12)]
    with reddit(tmp_path, clock, names) as (line, site):
        for name in names:
            site.publish(name, at=clock() - 500)
        line.run()
        line.wait(200, step=5)
        began, rng = clock(), random.Random(4)
        for _ in range(60):
            site.publish(rng.choice(names), late=rng.choice([0, 0, 200]))
            line.wait(60, step=10)
        line.wait(900, step=10)
        assert keys() == expected(site, began)
        assert min(b - a for a, b in pairwise(answered(site))) >= 60
        assert {status for *_, status in site.asked} == {200}
        assert all("+" in path for _, path, _ in site.asked)
        assert "12 subreddits in 1 group" in host_pace.reddit_sentence(line.rt)


def test_bad_members_have_their_own_status_and_the_others_go_on(tmp_path, clock):
    with reddit(tmp_path, clock, ["good", "other", "banned1", "secret1", "typo_x"]) as (line, site):
        site.banned.add("banned1")
        site.private.add("secret1")
        del site.posts["typo_x"]
        site.publish("good")
        site.publish("other")
        line.run()
        line.wait(2 * HOUR, step=15)
        rows = {row.ref: row for row in Watch.select()}
        assert {ref: row.health for ref, row in rows.items()} == {
            "good": "healthy", "other": "healthy", "banned1": "suspect", "secret1": "suspect", "typo_x": "suspect",
        }  # fmt: skip
        assert "banned" in rows["banned1"].last_error
        assert "private" in rows["secret1"].last_error
        assert "does not exist" in rows["typo_x"].last_error
        before = clock()
        site.publish("good")
        line.wait(600, step=15)
        assert keys() >= expected(site, before)
        site.banned.clear()
        line.wait(4 * HOUR, step=30)
        assert Watch.get(ref="banned1").health == "healthy"


def test_a_block_of_a_day_ends_by_itself_and_what_is_still_listed_is_read(tmp_path, clock):
    with reddit(tmp_path, clock, ["aa", "bb", "cc"]) as (line, site):
        line.run()
        line.wait(300, step=10)
        began = clock()
        site.blocked = True
        asked = len(site.asked)
        for _ in range(24):
            for name in ("aa", "bb", "cc"):
                site.publish(name)
            line.wait(HOUR, step=60)
        assert len(site.asked) - asked <= 24 * 60
        assert {row.health for row in Watch.select()} <= {"throttled", "outage"}
        site.blocked = False
        line.wait(2 * HOUR, step=30)
        assert keys() == expected(site, began)
        assert {row.health for row in Watch.select()} == {"healthy"}


def test_a_burst_larger_than_the_window_is_read_back_page_by_page(tmp_path, clock):
    with reddit(tmp_path, clock, ["aa", "bb"]) as (line, site):
        site.publish("aa")
        line.run()
        line.wait(250, step=10)
        began = clock()
        for number in range(350):
            site.publish("aa" if number % 3 else "bb", at=clock() + number / 10)
        line.wait(1200, step=10)
        assert keys() == expected(site, began)


def test_oauth_is_used_and_its_loss_is_one_problem_and_a_fall_back(tmp_path, clock):
    oauth = {"client_id_env": "RID", "client_secret_env": "RSECRET"}
    with reddit(tmp_path, clock, ["aa", "bb"], **oauth) as (line, site):
        line.run()
        line.wait(200, step=10)
        began = clock()
        site.publish("aa")
        line.wait(400, step=10)
        assert keys() == expected(site, began)
        assert not answered(site)
        site.accepts_key = False
        site.publish("bb")
        line.wait(900, step=10)
        assert keys() == expected(site, began)
        assert answered(site)
        assert [one.name for one in api_refusals.current()] == ["reddit_oauth"]
        assert "canary" not in str([row.last_error for row in Watch.select()])
        site.accepts_key = True
        line.wait(1.5 * HOUR, step=30)
        assert api_refusals.current() == []


def test_a_subreddit_is_added_by_name_and_the_possible_rate_is_told(tmp_path, clock):
    with reddit(tmp_path, clock, ["aa"]) as (line, _):
        added = watch_actions.add(line.rt, "https://www.reddit.com/r/Python/", {})
        assert (added.result, added.target.source, added.target.ref) == ("added", "reddit_subreddit", "python")
        assert "2 subreddits in 1 group, each every 3 min" in (added.remark or "")


def test_a_name_that_no_subreddit_has_is_refused_by_its_rule(tmp_path, clock):
    with reddit(tmp_path, clock, ["aa"]) as (line, site):
        with pytest.raises(
            watch_actions.WatchRefused, match=r"'r/no such' is no subreddit: expected .* 2 to 21 letters"
        ):
            watch_actions.add(line.rt, "r/no such", {})
        line.rt.settings.sources.pop("reddit_subreddit")
        with pytest.raises(watch_actions.WatchRefused, match=r"sources\.reddit_subreddit is not in the configuration"):
            watch_actions.add(line.rt, "r/python", {})
        assert site.asked == []


def test_two_busy_hours_with_ten_subreddits_lose_nothing_and_keep_the_limit(tmp_path, clock):
    names = [f"sub_{number:02}" for number in range(10)]
    with reddit(tmp_path, clock, names) as (line, site):
        found = busy_time(line, site, names, hours=2)
        assert (found.lost, found.extra, found.refused) == (0, 0, 0)
        assert found.posts > 1000
        assert found.passing <= found.posts / 100
        assert found.shortest_gap >= 60


def test_pages_that_are_left_to_read_survive_reads_of_other_groups(tmp_path, clock):
    names, rng = [f"sub_{number:02}" for number in range(20)], random.Random(1)
    with reddit(tmp_path, clock, names) as (line, site):
        for name in names * 10:
            site.publish(name, at=clock() - rng.random() * HOUR)
        line.run()
        line.wait(1200, step=30)
        began = clock()
        for posts in (*[20] * 20, 400, *[20] * 20):
            for _ in range(posts):
                site.publish(rng.choice(names))
            line.wait(60, step=30)
        line.wait(HOUR, step=30)
        assert expected(site, began) - keys() == set()


def test_members_that_are_found_due_together_take_one_slot(tmp_path, clock):
    """Each thread found its watch due before the first of them read or postponed the group."""
    with reddit(tmp_path, clock, ["aa", "bb", "cc", "dd"]) as (line, site):
        line.rt.pacer.reserve("reddit.com")
        clock.move(20)
        found = [watches.poll_candidate(row.id) for row in Watch.select()]
        for watch in found:
            poll._claim_and_read(line.rt, watch, "www.reddit.com", early=False)
        assert host_pacing.find("reddit.com").next_at <= clock() + 2 * SLOT
        line.wait(61, step=1)
        assert [path.count("+") for _, path, _ in site.asked] == [3]


def test_a_read_in_its_slot_is_sent_by_the_client_of_the_worker(tmp_path, clock):
    """Over HTTP, with the client and the two pacers that a process has."""
    site = RedditSite(now=clock)
    site.add("aa", "bb")
    for name in ("aa", "bb"):
        site.publish(name, at=clock() - 500)
    with db.connection(), serve_in_background(reddit_app(site)) as base:
        block = {"subreddits": [{"name": "aa"}, {"name": "bb"}], "feed_base_url": base}
        sources, no_delivery = {"reddit_subreddit": block}, {"delivery": False}
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources=sources, features=no_delivery)
        line.run()
        line.wait(5, step=1)
        began = clock()
        site.publish("aa")
        line.wait(200, step=10)
        assert keys() == expected(site, began)
        assert [(path.count("+"), status) for _, path, status in site.asked] == [(1, 200), (1, 200)]
