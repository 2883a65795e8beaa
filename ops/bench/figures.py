"""What was measured, for orientation, beside the table of targets. Pure."""

from typing import Any

COLUMNS = (
    ("events/s", "events_per_second", ".0f"),
    ("CPU ms/event", "cpu_ms_per_event", ".2f"),
    ("P50 ms", "p50_ms", ".0f"),
    ("P95 ms", "p95_ms", ".0f"),
    ("P99 ms", "p99_ms", ".0f"),
    ("peak MB", "peak_mb", ".0f"),
)
WIDTH = 14


def lines(report: dict[str, Any]) -> list[str]:
    """The line beside its peers, what kill -9 cost the other pipeline, and volumes: what of it was measured."""
    volumes = [_volume(name, one) for name, one in report.get("highvolume", {}).items()]
    found = report.get("line")
    if found is None:
        return volumes
    rows = [
        *(row for tier in ("standard", "urgent") for row in _tier(tier, found[tier])),
        _row(f"urgent, {found['steady']['rate']:g} a second", found["steady"]),
    ]
    return [_head(), *rows, *_killed(found.get("peer_killed")), *volumes]


def _volume(name: str, found: dict[str, Any]) -> str:
    return f"high volume, {name}: " + " ".join(f"{key}={value}" for key, value in found.items())


def _tier(name: str, found: dict[str, Any]) -> list[str]:
    others = [("plain loop", found.get("floor")), ("Celery, acks_late", found.get("peer"))]
    others.append(("Celery, early acks", found.get("peer_early")))
    return [_row(f"{name}, csi", found), *(_row(f"{name}, {who}", one) for who, one in others if one)]


def _head() -> str:
    return " " * 28 + "".join(f"{name:>{WIDTH}}" for name, _, _ in COLUMNS)


def _row(name: str, found: dict[str, Any]) -> str:
    cells = (format(found[key], form) if key in found else "" for _, key, form in COLUMNS)
    return f"{name:28}" + "".join(f"{cell:>{WIDTH}}" for cell in cells)


def _killed(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    return [f"Celery and Redis, killed {found['kills']} times: {found['lost']} lost, {found['again']} sent again"]
