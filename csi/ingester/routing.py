"""Route profiles: where the receiver should take an event (FR-2.2)."""

from collections.abc import Iterable
from typing import Any

from csi.config.settings import RouteProfile

DEFAULT_PIPELINE = "default"


def route(profile: RouteProfile | None, tier: str, tags: Iterable[str] = ()) -> dict[str, Any]:
    """The `routing` of an event. Without a profile its priority is the tier it travels in."""
    own = profile.tags if profile else ()
    return {
        "pipeline": profile.pipeline if profile else DEFAULT_PIPELINE,
        "priority": profile.priority if profile else tier,
        "tags": list(dict.fromkeys([*own, *tags])),
    }
