"""Maintenance windows: when they are open, in which time zone, and how a mistake in one is reported."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from csi.adapters import registry
from csi.config.loader import load
from csi.config.setting_types import MaintenanceWindow
from csi.config.settings import NotifySettings
from csi.errors import ConfigError
from csi.status.mutes import ActiveMutes, window_end
from csi.store.mutes import Mute
from csi.worker.scheduled_messages import MONDAY, last_time


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


NIGHT = NotifySettings(windows=(MaintenanceWindow(days=("sat", "sun"), start="02:00", end="04:00"),))
OVER_MIDNIGHT = NotifySettings(windows=(MaintenanceWindow(days=("fri",), start="23:30", end="00:30"),))
BERLIN = NotifySettings(timezone="Europe/Berlin", windows=(MaintenanceWindow(start="02:00", end="04:00"),))
SEVERAL = NotifySettings(windows=(*NIGHT.windows, MaintenanceWindow(start="03:00", end="06:00")))


@pytest.mark.parametrize(
    ("settings", "now", "end"),
    [
        (NIGHT, at("2026-02-21T01:59:59"), None),
        (NIGHT, at("2026-02-21T02:00"), at("2026-02-21T04:00")),
        (NIGHT, at("2026-02-21T04:00"), None),
        (NIGHT, at("2026-02-20T03:00"), None),
        (OVER_MIDNIGHT, at("2026-02-20T23:45"), at("2026-02-21T00:30")),
        (OVER_MIDNIGHT, at("2026-02-21T00:29"), at("2026-02-21T00:30")),
        (OVER_MIDNIGHT, at("2026-02-20T00:10"), None),
        (BERLIN, at("2026-02-21T01:30"), at("2026-02-21T03:00")),
        (BERLIN, at("2026-07-21T00:30"), at("2026-07-21T02:00")),
        (BERLIN, at("2026-03-29T03:30", "Europe/Berlin"), at("2026-03-29T04:00", "Europe/Berlin")),
        (SEVERAL, at("2026-02-21T03:30"), at("2026-02-21T06:00")),
        (NotifySettings(), at("2026-02-21T03:30"), None),
    ],
    ids=[
        *("before", "opens", "closes", "another day", "before midnight", "after midnight", "the day before"),
        *("winter", "summer", "the clock changes", "two at once", "none"),
    ],
)
def test_a_window_is_open_from_its_start_to_its_end_in_its_time_zone(settings, now, end):
    assert window_end(settings, now) == end


@pytest.mark.parametrize(
    ("window", "place", "words"),
    [
        ('{days: [sat], start: "25:00", end: "04:00"}', "3:28", "notify.windows[0].start: expected a time of day"),
        ('{days: [sat], start: 22:00, end: "04:00"}', "3:28", "in quotes"),
        ('{days: [saturday], start: "02:00", end: "04:00"}', "3:15", "expected 'mon'"),
        ('{days: [], start: "02:00", end: "04:00"}', "3:14", "notify.windows[0].days"),
        ('{start: "02:00", end: "04:00", timezone: Mars/Base}', "3:48", "expected a time zone such as UTC"),
        ('{start: "02:00", end: "04:00", timezone: "../../etc/passwd"}', "3:48", "expected a time zone"),
        ('{from: "02:00", end: "04:00"}', "3:8", "unknown key"),
        ('{start: "02:00"}', "3:7", "notify.windows[0].end: this key is required"),
    ],
)
def test_a_mistake_in_a_window_has_its_line_and_column(tmp_path: Path, window: str, place: str, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"notify:\n  windows:\n    - {window}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, env={}, sources=registry.settings_models())
    lines = [line for line in str(caught.value).splitlines() if words in line]
    assert lines, str(caught.value)
    assert lines[0].startswith(f"{file}:{place}"), lines


@pytest.mark.parametrize(
    ("now", "weekday", "found"),
    [
        (at("2026-02-22T08:59"), None, at("2026-02-21T09:00")),
        (at("2026-02-22T09:00"), None, at("2026-02-22T09:00")),
        (at("2026-02-23T08:59"), MONDAY, at("2026-02-16T09:00")),
        (at("2026-02-23T09:00"), MONDAY, at("2026-02-23T09:00")),
        (at("2026-03-01T23:00"), MONDAY, at("2026-02-23T09:00")),
    ],
)
def test_the_last_nine_o_clock(now, weekday, found):
    assert last_time(now, "UTC", weekday) == found


def test_nine_o_clock_is_that_of_the_time_zone():
    assert last_time(at("2026-07-22T07:30"), "Europe/Berlin") == at("2026-07-22T07:00")


def test_a_mute_covers_its_problem_and_one_without_a_problem_covers_all():
    mute = Mute(1, "quota_low", None, "cli", 0.0, 100.0, None)
    assert [ActiveMutes((mute,)).covers(name) for name in ("quota_low", "disk_low")] == [True, False]
    assert not ActiveMutes((mute,)).mutes_all
    every = ActiveMutes((mute, Mute(2, None, None, "cli", 0.0, 50.0, None)))
    assert (every.covers("disk_low"), every.mutes_all) == (True, True)
    assert ActiveMutes((), window_until=7.0).covers("disk_low")
