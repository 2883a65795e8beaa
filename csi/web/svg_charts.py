"""Charts as coordinates for SVG: throughput, API units of a day, a channel's figures. Pure; the template draws them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from math import ceil

from csi import clock
from csi.pipeline.quota_schedule import Forecast
from csi.store.poll_history import KEPT, PastRead
from csi.store.queries.charts import FlowChart

WIDTH, HEIGHT = 720, 180
LABEL_WIDTH = 70
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 8, 22
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
GAP = 0.22
"""The share of its slot that a bar leaves free."""
LABELS = 5

Point = tuple[float, int | None]
"""A moment, and the count at that moment. None: not known."""


@dataclass(frozen=True)
class Box:
    """A bar, or a part of one."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str
    link: str | None = None


@dataclass(frozen=True)
class Mark:
    """A grid line or an axis label: its position and its text. `moment`: the time that the text says in UTC."""

    at: float
    text: str
    moment: float | None = None


@dataclass(frozen=True)
class Chart:
    """Everything that the template draws."""

    title: str
    boxes: tuple[Box, ...] = ()
    slots: tuple[Box, ...] = ()
    """Invisible, over the whole height: what a click on an interval opens."""
    lines: tuple[str, ...] = ()
    dashes: str = ""
    dots: tuple[tuple[float, float], ...] = ()
    """Single counts between two gaps."""
    across: tuple[Mark, ...] = ()
    """Horizontal grid lines."""
    along: tuple[Mark, ...] = ()
    """Labels of the time axis."""
    notes: tuple[Mark, ...] = ()
    """Vertical lines, each with a text."""
    empty_text: str | None = None
    """Shown instead of a curve; None: there is one."""


def throughput(window: FlowChart, title: str, label_every: float) -> Chart:
    """Bars of delivered events and dead letters, and a line of seen events. Labels stand at round times. A click on an
    interval opens the events that were seen in it."""
    counts = list(zip(window.seen, window.arrived, window.died, strict=True))
    most = max((max(seen, arrived + died) for seen, arrived, died in counts), default=0)
    # The next round number, so that the grid has round ones.
    highest = next(step * 10**power for power in count() for step in (2, 4, 6, 10) if most <= step * 10**power)
    slot = INNER_WIDTH / len(counts)
    boxes: list[Box] = []
    slots: list[Box] = []
    corners: list[str] = []
    labels: list[Mark] = []
    for number, (seen, arrived, died) in enumerate(counts):
        left, moment = LEFT + number * slot, window.starts + number * window.step
        clock_time = _clock_time(moment)
        text = f"{clock_time} UTC: {seen:,} seen, {arrived:,} delivered, {died:,} died"
        x, width, foot = left + slot * GAP / 2, slot * (1 - GAP), _y(arrived / highest)
        if arrived:
            boxes.append(Box(x, foot, width, HEIGHT - BOTTOM - foot, "came", text))
        if died:
            top = _y((arrived + died) / highest)
            boxes.append(Box(x, top, width, max(foot - top, 1.5), "died", text))
        link = f"/events?from={clock.iso(moment)}&to={clock.iso(moment + window.step)}"
        slots.append(Box(left, TOP, slot, INNER_HEIGHT, "slot", text, link))
        corners += [f"{x:.1f},{_y(seen / highest):.1f}" for x in (left, left + slot)]
        if moment % label_every == 0 and number * slot < WIDTH - LEFT - 40:
            labels.append(Mark(left, clock_time, moment))
    totals = f"{sum(window.seen):,} seen, {sum(window.arrived):,} delivered, {sum(window.died):,} died"
    return Chart(
        title=f"{title}: {totals}",
        boxes=tuple(boxes),
        slots=tuple(slots),
        lines=(" ".join(corners),),
        across=_grid(highest),
        along=tuple(labels),
        empty_text=None if any(map(any, counts)) else "nothing in this time",
    )


def _clock_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M")


_RESULTS = {"new": "came", "nothing_new": "calm", "unchanged": "calm", "failed": "died"}


def read_bar(reads: Sequence[PastRead]) -> Chart:
    """One mark for each read, the newest at the right: new items, nothing new, failed."""
    slot = INNER_WIDTH / KEPT
    first = KEPT - len(reads)
    boxes = [
        Box(LEFT + (first + place) * slot, TOP, slot * 0.8, INNER_HEIGHT, _RESULTS[one.result], _read_text(one))
        for place, one in enumerate(reads)
    ]
    failed = sum(one.result == "failed" for one in reads)
    title = f"The last {len(reads)} reads: {failed} failed"
    return Chart(title, boxes=tuple(boxes), empty_text=None if reads else "not read yet")


def _read_text(one: PastRead) -> str:
    what = one.result.replace("_", " ") if one.result != "new" else f"{one.new_items:,} new"
    error = f": {one.error}" if one.error else ""
    return f"{clock.iso(one.at)}: {what}{error}, {one.seconds:.2f} s"


def read_times(reads: Sequence[PastRead]) -> Chart:
    """How long each read took, as bars in the places of `read_bar`."""
    highest = max((one.seconds for one in reads), default=0.0) or 1.0
    slot = INNER_WIDTH / KEPT
    first = KEPT - len(reads)
    boxes = []
    for place, one in enumerate(reads):
        top = _y(one.seconds / highest)
        height = max(HEIGHT - BOTTOM - top, 1.0)
        kind = "died" if one.result == "failed" else "came"
        boxes.append(
            Box(LEFT + (first + place) * slot, HEIGHT - BOTTOM - height, slot * 0.8, height, kind, _read_text(one))
        )
    # With few reads there is no room for both times.
    places = (0, len(reads) - 1) if (len(reads) - 1) * slot > LABEL_WIDTH else (len(reads) - 1,)
    ends = [(place, reads[place].at) for place in places] if reads else []
    return Chart(
        f"Duration of the last {len(reads)} reads, at most {highest:.2f} s" if reads else "Duration of reads",
        boxes=tuple(boxes),
        across=tuple(Mark(_y(share), f"{highest * share:.2g} s") for share in (0, 0.5, 1)) if reads else (),
        along=tuple(Mark(min(LEFT + (first + place) * slot, WIDTH - 60), _clock_time(at), at) for place, at in ends),
        empty_text=None if reads else "not read yet",
    )


def quota_burn(forecast: Forecast, now: float, starts_at: float, left: Sequence[int]) -> Chart:
    """API units left over the Pacific day (`left` by hour), and the projection to its end at the present rate."""
    length, highest = forecast.ends_at - starts_at, max(forecast.limit, 1)

    def point(seconds: float, units: float) -> str:
        return f"{LEFT + INNER_WIDTH * min(seconds / length, 1.0):.1f},{_y(units / highest):.1f}"

    known = [point(0, forecast.limit), *(point((hour + 1) * 3600, units) for hour, units in enumerate(left[:-1]))]
    now_at = point(max(now - starts_at, 0), forecast.left)
    end_units = max(forecast.left - forecast.per_hour * (forecast.ends_at - now) / 3600, 0)
    hours = range(0, int(length // 3600), 6)
    return Chart(
        title=f"{forecast.left:,} of {forecast.limit:,} API units left",
        lines=(" ".join([*known, now_at]),),
        dashes=f"{now_at} {point(length, end_units)}",
        across=_grid(highest),
        along=tuple(
            Mark(
                LEFT + INNER_WIDTH * hour * 3600 / length, _clock_time(starts_at + hour * 3600), starts_at + hour * 3600
            )
            for hour in hours
        ),
    )


LEAST_SPAN = 0.1
"""The axis of a curve covers at least this share of its highest count: a change of 0.01 % stays flat."""


def scale(low: int, high: int, *, is_gain: bool) -> tuple[int, int]:
    """The ends of the axis. That of gains includes zero; that of counts begins near the lowest one."""
    if is_gain:
        low, high = min(low, 0), max(high, 0)
    missing = LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
    margin = ceil(missing / 2) if missing > 0 else 0
    return low - margin if low < 0 else max(low - margin, 0), high + margin


def curve(
    title: str, points: Sequence[Point], *, is_gain: bool = False, note: tuple[float, str] | None = None
) -> Chart:
    """Counts over time, with gaps where a count is not known. `note`: a moment that is marked with a text."""
    known = [value for _, value in points if value is not None]
    if not known:
        return Chart(f"{title}: no data yet", empty_text="no data yet")
    low, high = min(known), max(known)
    first, last = points[0][0], points[-1][0]
    bottom, top = scale(low, high, is_gain=is_gain)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            up = (value - bottom) / (top - bottom) if top > bottom else 0.5
            runs[-1].append((_time_x(at, first, last), _y(up)))
    step = (last - first) / (LABELS - 1)
    moments = [first + step * place for place in range(LABELS - 1)] if last > first else [first]
    levels = [(bottom, 0.0), (top, 1.0)] if top > bottom else [(low, 0.5)]
    is_noted = note is not None and first <= note[0] <= last and last > first
    return Chart(
        title=f"{title}: {known[-1]:,}, from {low:,} to {high:,}",
        lines=tuple(" ".join(f"{x:.1f},{y:.1f}" for x, y in run) for run in runs if len(run) > 1),
        dots=tuple(run[0] for run in runs if len(run) == 1),
        across=tuple(Mark(_y(up), short(value)) for value, up in levels),
        along=tuple(
            Mark(_time_x(at, first, last) if last > first else LEFT, datetime.fromtimestamp(at, UTC).strftime("%d %b"))
            for at in moments
        ),
        notes=(Mark(_time_x(note[0], first, last), note[1], note[0]),) if note is not None and is_noted else (),
    )


def _time_x(at: float, first: float, last: float) -> float:
    return LEFT + INNER_WIDTH * ((at - first) / (last - first) if last > first else 0.5)


def _y(share: float) -> float:
    """The height of a share of the axis, from 0 at its foot to 1 at its top."""
    return TOP + INNER_HEIGHT * (1 - min(share, 1.0))


def _grid(highest: int) -> tuple[Mark, ...]:
    return tuple(Mark(_y(share), short(highest * share)) for share in (0, 0.5, 1))


def short(value: float) -> str:
    """`7.19B`, `2.29M`, `190k`, `-3`."""
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (10_000, "k")):
        if abs(value) >= size:
            return f"{value / (1_000 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,g}"
