"""The routing hints of an event, from its route profile (FR-2.2). The PRD promises the path; nothing is sent here."""

from collections.abc import Iterable
from typing import Any

from csi.config.settings import RouteProfile

DEFAULT_PIPELINE = "default"


def route(profile: RouteProfile | None, tier: str, tags: Iterable[str] = ()) -> dict[str, Any]:
    """The `routing` of an event. Without a profile its priority is its tier."""
    own = profile.tags if profile else ()
    return {
        "pipeline": profile.pipeline if profile else DEFAULT_PIPELINE,
        "priority": profile.priority if profile else tier,
        "tags": list(dict.fromkeys([*own, *tags])),
    }
