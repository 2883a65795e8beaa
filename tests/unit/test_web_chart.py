"""Charts and texts of the dashboard: the rules alone."""

import pytest

from csi.pipeline.quota_schedule import Forecast
from csi.store.poll_history import PastRead
from csi.store.queries.charts import FlowChart
from csi.web import formatting, svg_charts

NOON = 1_771_761_600.0


def window(seen: tuple[int, ...], arrived: tuple[int, ...], died: tuple[int, ...]) -> FlowChart:
    return FlowChart(NOON, 900, seen, arrived, died)


def test_bars_stand_on_the_ground_and_the_dead_on_the_delivered() -> None:
    drawn = svg_charts.throughput(window((4, 0, 2), (2, 0, 1), (2, 0, 0)), "Last hour", 1800)
    came, died, late = drawn.boxes
    ground = svg_charts.HEIGHT - svg_charts.BOTTOM
    assert came.y + came.height == pytest.approx(ground)
    assert died.y + died.height == pytest.approx(came.y)
    assert died.y == pytest.approx(svg_charts.TOP)
    assert (came.kind, died.kind, late.kind) == ("came", "died", "came")
    assert late.text == "12:30 UTC: 2 seen, 1 delivered, 0 died"
    assert drawn.title == "Last hour: 6 seen, 3 delivered, 2 died"
    assert [mark.text for mark in drawn.across] == ["0", "2", "4"]
    assert [mark.text for mark in drawn.along] == ["12:00", "12:30"]
    assert drawn.empty_text is None


def test_the_times_of_a_few_reads_do_not_cover_each_other() -> None:
    reads = [PastRead(NOON + 20 * number, 0.5, "unchanged", 0, None) for number in range(svg_charts.KEPT)]
    assert [mark.text for mark in svg_charts.read_times(reads[:10]).along] == ["12:03"]
    assert [mark.text for mark in svg_charts.read_times(reads).along] == ["12:00", "13:06"]


def test_times_in_a_sentence_become_times_of_the_page() -> None:
    shown = formatting.with_times("paused <b> since 2026-02-22T12:00:00Z: x")
    assert shown == (
        'paused &lt;b&gt; since <time data-at datetime="2026-02-22T12:00:00Z" title="2026-02-22T12:00:00Z">'
        "2026-02-22T12:00:00Z</time>: x"
    )
    assert formatting.with_times(None) == ""


def test_an_empty_time_says_so() -> None:
    drawn = svg_charts.throughput(window((0, 0), (0, 0), (0, 0)), "Last hour", 900)
    assert (drawn.empty_text, drawn.boxes) == ("nothing in this time", ())


@pytest.mark.parametrize(("highest", "top"), [(0, 2), (3, 4), (5, 6), (7, 10), (11, 20), (41, 60), (61_000, 100_000)])
def test_the_grid_ends_at_a_round_number(highest: int, top: int) -> None:
    drawn = svg_charts.throughput(window((highest,), (0,), (0,)), "x", 900)
    assert drawn.across[-1].text == svg_charts.short(top)


def test_the_burn_down_goes_from_the_limit_to_now_and_on_to_midnight() -> None:
    starts, now = NOON, NOON + 12 * 3600
    forecast = Forecast("d", 10_000, 5_000, 500, starts + 86_400, starts + 86_400, 250.0, 3_000, (), None)
    drawn = svg_charts.quota_burn(forecast, now, starts, (7_500, 5_000))
    spots = [tuple(map(float, spot.split(","))) for spot in drawn.lines[0].split()]
    assert spots[0] == (svg_charts.LEFT, svg_charts.TOP)
    assert spots[-1][0] == pytest.approx((svg_charts.LEFT + svg_charts.WIDTH - svg_charts.RIGHT) / 2, abs=0.1)
    end = tuple(map(float, drawn.dashes.split()[1].split(",")))
    assert end[0] == pytest.approx(svg_charts.WIDTH - svg_charts.RIGHT)
    assert end[1] > spots[-1][1]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [(None, "–"), (NOON, "now"), (NOON - 8.9, "9 s ago"), (NOON + 42, "in 42 s"), (NOON - 150, "2 min ago"),
     (NOON - 9_000, "2 h ago"), (NOON - 400_000, "5 d ago")],
)  # fmt: skip
def test_times_are_shown_relative_to_now(moment: float | None, expected: str) -> None:
    assert formatting.ago(moment, NOON) == expected


def test_a_share_is_never_rounded_up_to_a_promise() -> None:
    assert [formatting.percent(share) for share in (None, 0.0, 0.9499, 0.95, 0.99999, 1.0)] == [
        "–", "0 %", "94.9 %", "95 %", "99.9 %", "100 %",
    ]  # fmt: skip
