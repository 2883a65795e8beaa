"""An alert that fires, with the values that most tests do not care about."""

from typing import Any

from csi.store import alerts


def fire_alert(name: str, subject: str, text: str, now: float, **more: Any) -> bool:
    values = {"severity": "degraded", "remedy": "`csi doctor`", "since": now, "delay": 0.0, "events": 0}
    return alerts.fire(name, subject, text=text, now=now, **(values | more))
