"""Values of the catalogue that specification 002 names: the feed's validators, hourly gains, enumerations."""

import pytest
from peewee import IntegrityError

from csi.store import db
from csi.store.catalog import channels, stats
from tests.rigs.in_process import HOUR, catalog_pipeline


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ('feed:1771754400:W/"a:b"', 'W/"a:b"'),
        ("api:1771754400:abc", "abc"),
        ("feed:1771754400:", None),
        ("body:1771754400:9f86d081884c", None),
        (None, None),
    ],
)
def test_last_etag_is_what_the_server_sent_or_nothing(tmp_path, clock, stored, sent):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        here.add(made)
        db.run("UPDATE watches SET etag = ?, last_modified = ? WHERE ref = ?", stored, stored, made.id)
        feed = channels.feed_of(made.id)
        assert (feed.last_etag, feed.last_modified) == (sent, sent)


def test_an_hourly_gain_says_over_how_many_hours_it_was_averaged(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1, every=HOUR)
        here.add(made, watch=False)
        here.run()
        video = here.world.newest(made.id)[0]
        assert stats.recent(video.id)[0].hourly_views_hours is None
        clock.time += 5 * HOUR
        here.run()
        newest, first = stats.recent(video.id)[0], stats.recent(video.id)[-1]
        assert newest.hourly_views_hours == pytest.approx((newest.captured_at - first.captured_at) / HOUR, abs=0.01)
        assert newest.hourly_views == round((newest.view_count - first.view_count) / newest.hourly_views_hours)


@pytest.mark.parametrize(
    ("name", "good"), [("definition", "hd"), ("privacy_status", "unlisted"), ("upload_status", "processed")]
)
def test_the_database_refuses_values_that_the_api_does_not_document(tmp_path, clock, name, good):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        here.add(made)
        here.run()
        db.run(f"UPDATE videos SET {name} = ?", good)
        with pytest.raises(IntegrityError), db.writing():
            db.run(f"UPDATE videos SET {name} = 'sepia'")
