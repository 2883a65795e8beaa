"""Charts as numbers for SVG: what is drawn where. Pure; the template only writes it down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from csi.status.dashboard import Burn, Window

WIDTH, HEIGHT = 720, 180
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 8, 22
GAP = 0.22
"""The share of a place that stays free between two bars."""


@dataclass(frozen=True)
class Box:
    """A bar, or a part of one."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str


@dataclass(frozen=True)
class Mark:
    """A line of the grid or a label of an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Everything a template needs."""

    title: str
    boxes: tuple[Box, ...] = ()
    line: str = ""
    dashes: str = ""
    across: tuple[Mark, ...] = ()
    """Horizontal lines, with what they stand for."""
    along: tuple[Mark, ...] = ()
    """Labels under the time axis."""
    is_empty: bool = False


def flow(window: Window, title: str, label_every: float) -> Chart:
    """Bars of what arrived and what died, with a line over what was seen."""
    highest = _top(max(_sums(window), default=0))
    place = (WIDTH - LEFT - RIGHT) / len(window.seen)
    boxes = [box for number in range(len(window.seen)) for box in _bar(window, number, place, highest)]
    return Chart(
        title=f"{title}: {sum(window.seen):,} seen, {sum(window.arrived):,} delivered, {sum(window.died):,} died",
        boxes=tuple(boxes),
        line=_steps(window.seen, place, highest),
        across=_grid(highest),
        along=_times(window, place, label_every),
        is_empty=not any(_sums(window)),
    )


def burn(found: Burn) -> Chart:
    """Units left over the Pacific day: what was, and where it leads at this rate."""
    forecast = found.forecast
    length, highest = forecast.ends_at - found.starts_at, max(forecast.limit, 1)

    def spot(seconds: float, units: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * min(seconds / length, 1.0)
        return f"{across:.1f},{_height(units, highest):.1f}"

    known = [spot(0, forecast.limit), *(spot((hour + 1) * 3600, units) for hour, units in enumerate(found.left[:-1]))]
    now_at = spot(max(found.now - found.starts_at, 0), forecast.left)
    end_units = max(forecast.left - forecast.per_hour * (forecast.ends_at - found.now) / 3600, 0)
    return Chart(
        title=f"{forecast.left:,} of {forecast.limit:,} API units left",
        line=" ".join([*known, now_at]),
        dashes=f"{now_at} {spot(length, end_units)}",
        across=_grid(highest),
        along=_hours(found.starts_at, length),
    )


def _sums(window: Window) -> list[int]:
    return [max(seen, came + died) for seen, came, died in zip(window.seen, window.arrived, window.died, strict=True)]


def _bar(window: Window, number: int, place: float, highest: int) -> list[Box]:
    came, died = window.arrived[number], window.died[number]
    x, width = LEFT + number * place + place * GAP / 2, place * (1 - GAP)
    when = datetime.fromtimestamp(window.starts + number * window.step, UTC).strftime("%H:%M")
    text = f"{when} UTC: {window.seen[number]:,} seen, {came:,} delivered, {died:,} died"
    boxes = []
    if came:
        top = _height(came, highest)
        boxes.append(Box(x, top, width, HEIGHT - BOTTOM - top, "came", text))
    if died:
        top, foot = _height(came + died, highest), _height(came, highest)
        boxes.append(Box(x, top, width, max(foot - top, 1.5), "died", text))
    return boxes


def _steps(values: Sequence[int], place: float, highest: int) -> str:
    spots = []
    for number, value in enumerate(values):
        y = _height(value, highest)
        spots += [f"{LEFT + number * place:.1f},{y:.1f}", f"{LEFT + (number + 1) * place:.1f},{y:.1f}"]
    return " ".join(spots)


def _height(value: float, highest: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value / highest, 1.0))


def _top(highest: int) -> int:
    """The next round number, so that the grid has round ones."""
    size = 1
    while True:
        for step in (2, 4, 6, 10):
            if highest <= step * size:
                return step * size
        size *= 10


def _grid(highest: int) -> tuple[Mark, ...]:
    return tuple(Mark(_height(value, highest), _short(value)) for value in (0, highest / 2, highest))


def _short(value: float) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def _times(window: Window, place: float, every: float) -> tuple[Mark, ...]:
    """A label where a bar begins at a round time."""
    starts = [window.starts + number * window.step for number in range(len(window.seen))]
    return tuple(
        Mark(LEFT + number * place, datetime.fromtimestamp(moment, UTC).strftime("%H:%M"))
        for number, moment in enumerate(starts)
        if moment % every == 0 and number * place < WIDTH - LEFT - 40
    )


def _hours(starts_at: float, length: float) -> tuple[Mark, ...]:
    hours = range(0, int(length // 3600), 6)
    span = (WIDTH - LEFT - RIGHT) * 3600 / length
    return tuple(Mark(LEFT + hour * span, f"{hour:02d}:00") for hour in hours)
