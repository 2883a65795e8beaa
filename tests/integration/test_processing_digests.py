"""Digests: at a chosen hour of a time zone, for all pipelines and for one; each tells what happened since the last."""

import pytest
from pydantic import ValidationError

from csi import clock as csi_clock
from csi.processing.pipeline import runs
from csi.processing.pipeline.digests import DigestSpan, _spans, make_digest, whole_day
from csi.processing.settings import DigestTime, ProcessingSettings
from csi.processing.store import runs as run_rows
from csi.processing.store.db import fetch, writing

HOUR = 3600.0
BERLIN = {"at": "18:00", "time_zone": "Europe/Berlin"}


def at(text: str) -> float:
    return csi_clock.parse(f"{text}:00Z")


def move_to(bench, text: str) -> None:
    """The worker was running all the time."""
    while bench.clock() < at(text):
        bench.clock.move(min(HOUR, at(text) - bench.clock()))
        bench.run_for(0)


def written(bench) -> dict[str, str]:
    folder = bench.settings.artifacts / "digests"
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.md"))} if folder.exists() else {}


def test_a_digest_is_written_at_its_hour_and_continues_the_one_before(open_bench, clock):
    """2026-02-22 is a day of winter time: 18:00 in Berlin is 17:00 UTC."""
    bench = open_bench(digest=BERLIN)
    clock.time = at("2026-02-22T12:00")
    bench.deliver("vid00000001")
    bench.run_for(0)
    move_to(bench, "2026-02-22T16:59")
    assert written(bench) == {}
    move_to(bench, "2026-02-22T17:01")
    bench.deliver("vid00000002")
    bench.run_for(0)
    move_to(bench, "2026-02-23T17:01")
    found = written(bench)
    assert list(found) == ["digest-2026-02-22", "digest-2026-02-23"]
    told = [[number for number in (1, 2) if f"Title of vid0000000{number}" in page] for page in found.values()]
    assert told == [[1], [2]]
    assert fetch("SELECT title FROM notices WHERE subject LIKE 'digest:%' ORDER BY id") == [
        ("CSI digest of 2026-02-22",),
        ("CSI digest of 2026-02-23",),
    ]


def test_a_pipeline_has_a_digest_of_its_own(open_bench, clock):
    bench = open_bench(digest={"pipelines": {"creator_watchlist_handler": BERLIN}}, routes={"other": {}})
    clock.time = at("2026-02-22T12:00")
    bench.deliver("vid00000001")
    bench.deliver("vid00000002", pipeline="other")
    bench.run_for(0)
    move_to(bench, "2026-02-23T01:00")
    found = written(bench)
    assert set(found) == {"digest-2026-02-22", "digest-2026-02-22-creator_watchlist_handler"}
    common, own = found["digest-2026-02-22"], found["digest-2026-02-22-creator_watchlist_handler"]
    assert "vid00000002" in common
    assert "vid00000001" not in common
    assert own.startswith(
        "# CSI digest of 2026-02-22: creator_watchlist_handler\n\n1 summarised · 0 skipped · 0 failed\n"
    )
    assert "vid00000002" not in own
    page, _ = make_digest(bench.rt, whole_day("2026-02-22"))  # the page of a day has everything
    assert "vid00000001" in page
    assert "vid00000002" in page


@pytest.mark.parametrize(
    ("begun", "now", "expected"),
    [
        ("2026-02-22T00:00", "2026-02-22T16:00", []),
        ("2026-02-22T00:00", "2026-02-22T17:00", [("2026-02-22T00:00", "2026-02-22T17:00")]),
        # the hour was 07:00 until now
        ("2026-02-22T06:00", "2026-02-22T17:30", [("2026-02-22T06:00", "2026-02-22T17:00")]),
        # the worker did not run for two days
        (
            "2026-02-20T17:00",
            "2026-02-22T18:00",
            [("2026-02-20T17:00", "2026-02-21T17:00"), ("2026-02-21T17:00", "2026-02-22T17:00")],
        ),
        # summer time begins on 2026-03-29: the day has 23 hours
        ("2026-03-28T17:00", "2026-03-29T17:00", [("2026-03-28T17:00", "2026-03-29T16:00")]),
    ],
)
def test_a_digest_begins_where_the_last_one_ended(begun, now, expected):
    found = list(_spans(DigestTime(**BERLIN), at(now), at(begun)))
    assert found == [(at(start), at(end)) for start, end in expected]


def test_after_a_long_absence_the_digests_of_a_week_are_written():
    found = list(_spans(DigestTime(), at("2026-02-22T12:00"), at("2026-01-01T00:00")))
    assert len(found) == 7
    assert found[-1] == (at("2026-02-21T00:00"), at("2026-02-22T00:00"))


def test_days_whose_digest_1_0_0_wrote_are_not_written_again(open_bench, clock):
    bench = open_bench()
    clock.time = at("2026-02-22T12:00")
    bench.deliver("vid00000001")
    bench.drain()
    runs.update_runs(bench.rt)
    with writing():
        run_rows.mark("2026-02-22", "digest", "written", at("2026-02-23T09:00"))
    clock.time = at("2026-02-23T09:01")
    bench.run_for(0)
    assert written(bench) == {}
    move_to(bench, "2026-02-24T00:01")
    assert list(written(bench)) == ["digest-2026-02-23"]


def test_a_digest_that_is_switched_off_is_not_made_up_for(open_bench, clock):
    bench = open_bench(digest={"enabled": False})
    clock.time = at("2026-02-22T12:00")
    bench.run_for(0)
    move_to(bench, "2026-02-23T12:00")
    bench.settings = bench.settings.model_copy(
        update={"digest": bench.settings.digest.model_copy(update={"enabled": True})}
    )
    bench.start()
    bench.run_for(0)
    assert written(bench) == {}


def test_a_digest_of_a_pipeline_without_a_route_is_refused():
    with pytest.raises(ValidationError, match="'typo' has no route; expected one of creator_watchlist_handler, manual"):
        ProcessingSettings.model_validate({"digest": {"pipelines": {"typo": {}}}})
    assert ProcessingSettings.model_validate({"digest": {"pipelines": {"manual": {}}}})


def test_the_spent_money_stands_in_the_common_digest_only(open_bench):
    bench = open_bench()
    assert "0.0000 of 5.0000 USD" in make_digest(bench.rt, whole_day("2026-02-22"))[0]
    assert "USD" not in make_digest(bench.rt, DigestSpan("2026-02-22", 0, 1, "quiet"))[0]
