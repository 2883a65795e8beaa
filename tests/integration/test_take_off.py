"""`video_taking_off`: a video far above its channel's own median makes one event, through the ordinary delivery."""

import json

import pytest

from csi.catalog.take_off import is_taking_off
from csi.config.settings import TakeOffSettings
from csi.pipeline import ingest
from csi.store import db, inbox
from csi.store.catalog.movers import UsualViews
from csi.store.models import Event
from tests.rigs.in_process import HOUR, catalog_pipeline


@pytest.mark.parametrize(
    ("hourly", "usual", "verdict"),
    [
        (5_000, UsualViews(1_000, 3), True),
        (4_999, UsualViews(1_000, 3), False),
        (5_000, UsualViews(1_000, 2), False),
        (999, UsualViews(0, 5), False),
        (1_000, UsualViews(0, 5), True),
        (None, UsualViews(0, 5), False),
    ],
)
def test_the_rule(hourly, usual, verdict):
    assert is_taking_off(hourly, usual, TakeOffSettings(enabled=True)) is verdict


@pytest.mark.parametrize("enabled", [True, False])
def test_a_video_that_takes_off_makes_one_event(tmp_path, clock, enabled):
    with catalog_pipeline(tmp_path, clock, catalog={"take_off": {"enabled": enabled}}) as here:
        made = here.channel(videos=5)
        here.add(made)
        here.run()
        for video in here.world.newest(made.id):
            here.world.edit(video.id, at=clock(), views_per_hour=100)
        here.go(3 * HOUR)
        star = here.world.newest(made.id)[0].id
        here.world.edit(star, at=clock(), views_per_hour=50_000)
        here.go(6 * HOUR)
        for item_id in inbox.overdue(clock() + HOUR):
            ingest.ingest(here.rt, item_id)
        found = [row for row in Event.select() if row.event_type == "video_taking_off"]
        assert len(found) == enabled
        assert db.fetch("SELECT COUNT(*) FROM inbox WHERE state <> 'done'") == [(0,)]
        if found:
            subject = json.loads(found[0].subject_json)
            assert (subject["video_id"], subject["channel_id"]) == (star, made.id)
            assert subject["hourly_views"] > 5 * subject["usual_hourly_views"]
            assert found[0].dedupe_key == f"youtube:take_off:{star}"
