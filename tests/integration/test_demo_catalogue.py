"""`csi demo --catalogue` and the growth of the simulated YouTube that it shows."""

import json
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.demo import catalogue
from csi.simulator.youtube.world import GrowthClock
from tests.fakes.youtube import simulated_youtube

DAY = 86_400.0


def test_two_simulated_days_have_gains_and_tiers(tmp_path):
    shown = []
    found = catalogue.run(tmp_path, number=2, show=shown.append, days=2)
    assert (len(found.days), found.dead_jobs) == (2, 0)
    assert shown == found.days
    assert set(found.days[-1].tiers) == {"hot", "medium", "tail"}
    assert found.days[-1].captures > 80
    assert any(row.daily_views for row in found.days[-1].channels)
    assert found.movers
    assert found.days[-1].stats_units > 0


@pytest.mark.parametrize("more", [["--processing"], ["--faults", "storm"]])
def test_the_catalogue_demo_runs_alone(more):
    result = CliRunner().invoke(cli, ["demo", "--catalogue", *more])
    assert result.exit_code == 2
    assert "--catalogue goes with neither" in result.output


@pytest.mark.parametrize("speed", ["0", "-1x", "fast", "9999999x", "nan"])
def test_a_speed_that_is_none_is_refused(speed):
    result = CliRunner().invoke(cli, ["simulate", "youtube", "--speed", speed, "--seconds", "0.1"])
    assert result.exit_code == 2
    assert "is not a speed" in result.output


def test_what_has_grown_stays_when_the_speed_changes():
    growth = GrowthClock()
    growth.set_speed(3600.0, 1_000.0)
    assert growth.at(1_001.0) == 1_000.0 + 3600.0
    growth.set_speed(1.0, 1_001.0)
    assert growth.at(1_011.0) == 1_000.0 + 3600.0 + 10.0


def test_views_and_subscribers_grow_as_the_control_api_says(clock):
    with simulated_youtube(channels=1, videos=1, now=clock) as yt:
        video, channel = yt.world.newest(yt.channels[0])[0].id, yt.channels[0]

        def grow(**body):
            data = json.dumps(body).encode()
            request = urllib.request.Request(
                f"{yt.base_url}/sim/growth", data=data, headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        def views() -> int:
            url = f"{yt.api_base_url}/videos?part=statistics&id={video}&key={yt.api_key}"
            with urllib.request.urlopen(url) as answer:
                return int(json.load(answer)["items"][0]["statistics"]["viewCount"])

        before = views()
        grow(video=video, views_per_hour=3_600)
        assert abs(views() - before) <= 1
        clock.move(10)
        assert 9 <= views() - before <= 11
        assert grow(speed=3600)["speed"] == 3600
        clock.move(10)
        assert 36_000 <= views() - before <= 36_020
        subscribers = yt.world.channel(channel).subscribers_at(yt.world.growth.at(clock()))
        grow(channel=channel, subscribers_per_day=24_000)
        clock.move(1)
        grown = yt.world.channel(channel).subscribers_at(yt.world.growth.at(clock())) - subscribers
        assert 990 <= grown <= 1_010
        for bad in ({}, {"video": video}, {"views_per_hour": 3}, {"speed": 0}, {"video": "nope", "views_per_hour": 1}):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                grow(**bad)
            assert refusal.value.code in (400, 422)
