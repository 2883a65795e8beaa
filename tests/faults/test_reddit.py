"""A day of the source `reddit_subreddit` with 50 subreddits, and a day in which Reddit refuses every request."""

import pytest

from csi.store.models import Watch
from tests.rigs.simulated_reddit import HOUR, busy_time, expected, keys, reddit


@pytest.mark.faults
def test_case_156_reddit_a_day_with_fifty_subreddits(tmp_path, clock, case):
    names = [f"sub_{number:02}" for number in range(50)]
    with reddit(tmp_path, clock, names) as (line, site):
        found = busy_time(line, site, names, hours=24)
        began, asked, site.blocked = clock(), len(site.asked), True
        for hour in range(24):
            for name in names[hour % 5 :: 5]:
                site.publish(name)
            line.wait(HOUR, step=60)
        refused, site.blocked = len(site.asked) - asked, False
        line.wait(2 * HOUR, step=30)
        lost = len(expected(site, began) - keys())
        case.note(
            served=found.posts + len(expected(site, began)),
            lost=found.lost + lost,
            extra=found.extra,
            never_in_a_window=found.passing,
            requests=found.requests,
            shortest_gap=f"{found.shortest_gap:.0f}s>=60s",
            requests_in_a_day_of_refusals=f"{refused}<=1440",
        )
        assert (found.lost, found.extra, found.refused, lost) == (0, 0, 0, 0)
        assert found.passing <= found.posts / 100
        assert found.shortest_gap >= 60
        assert refused <= 24 * 60
        assert {row.health for row in Watch.select()} == {"healthy"}
