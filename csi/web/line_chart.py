"""A curve over time as numbers for SVG, with gaps where nothing was counted. Pure; the template only writes it down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from csi.web.bar_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Mark

Point = tuple[float, int | None]
"""A moment, and what was counted then. None: not known."""

LABELS = 5


@dataclass(frozen=True)
class Curve:
    """Everything a template needs."""

    title: str
    lines: tuple[str, ...] = ()
    """One for each stretch without a gap."""
    dots: tuple[tuple[float, float], ...] = ()
    """Counts that stand alone between two gaps."""
    across: tuple[Mark, ...] = ()
    along: tuple[Mark, ...] = ()
    is_empty: bool = True


def draw(title: str, points: Sequence[Point]) -> Curve:
    """The axis begins at the lowest count, not at nothing: what moves is the question here."""
    known = [(at, value) for at, value in points if value is not None]
    if not known:
        return Curve(f"{title}: nothing is known yet")
    low, high = min(value for _, value in known), max(value for _, value in known)
    first, last = points[0][0], points[-1][0]
    spots = [[_spot(at, value, (first, last), (low, high)) for at, value in run] for run in _runs(points)]
    return Curve(
        title=f"{title}: {known[-1][1]:,}, from {low:,} to {high:,}",
        lines=tuple(" ".join(f"{x:.1f},{y:.1f}" for x, y in run) for run in spots if len(run) > 1),
        dots=tuple(run[0] for run in spots if len(run) == 1),
        across=_across(low, high),
        along=_along(first, last),
        is_empty=False,
    )


def _runs(points: Sequence[Point]) -> list[list[tuple[float, int]]]:
    """Stretches in which every count is known."""
    runs: list[list[tuple[float, int]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _spot(at: float, value: int, times: tuple[float, float], bounds: tuple[int, int]) -> tuple[float, float]:
    (first, last), (low, high) = times, bounds
    along = (at - first) / (last - first) if last > first else 0.5
    up = (value - low) / (high - low) if high > low else 0.5
    return LEFT + (WIDTH - LEFT - RIGHT) * along, TOP + (HEIGHT - TOP - BOTTOM) * (1 - up)


def _across(low: int, high: int) -> tuple[Mark, ...]:
    values = [low, high] if high > low else [low]
    return tuple(Mark(_spot(0, value, (0, 0), (low, high))[1], short(value)) for value in values)


def _along(first: float, last: float) -> tuple[Mark, ...]:
    if last <= first:
        return (Mark(LEFT, _day(first)),)
    step = (last - first) / (LABELS - 1)
    moments = [first + step * place for place in range(LABELS - 1)]
    return tuple(Mark(_spot(at, 0, (first, last), (0, 1))[0], _day(at)) for at in moments)


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%d %b")


def short(value: int) -> str:
    """`7.19B`, `2.29M`, `190k`, `-3`."""
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (10_000, "k")):
        if abs(value) >= size:
            return f"{value / (1_000 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,}"
