"""Whether operators would be notified: targets that fail, and an installation that has none."""

from collections.abc import Iterator
from dataclasses import dataclass

from csi.notifications import NOT_ACCEPTED
from csi.runtime import Runtime, notification_targets
from csi.status.problems import Problem
from csi.store import notification_log
from csi.store.notification_log import FailingTarget

NO_TARGET = "neither a notification target nor a heartbeat URL is set"
SET_TARGET = (
    "set `CSI_NOTIFY_URLS` or `CSI_HEARTBEAT_URL` in the environment or in /etc/csi/env, restart the worker, then "
    "`csi notify test`; where another program watches this installation, set `notify.enabled: false`"
)


@dataclass(frozen=True)
class NotificationFacts:
    """How operators are notified. `is_on` False: the configuration switches notifications off."""

    is_on: bool = True
    targets: tuple[str, ...] = ()
    has_heartbeat_url: bool = True
    failing: tuple[FailingTarget, ...] = ()


def notification_facts(rt: Runtime) -> NotificationFacts:
    targets = tuple(target.name for target in notification_targets(rt.settings))
    failing = tuple(notification_log.failing(targets))
    return NotificationFacts(
        rt.settings.notify.enabled, targets, rt.settings.secrets.heartbeat_url is not None, failing
    )


def problems(found: NotificationFacts) -> Iterator[Problem]:
    if not found.is_on:
        return
    if not found.targets and not found.has_heartbeat_url:
        effect = "no notification is sent when something fails"
        yield Problem("no_notification_target", "notifications", "notice", NO_TARGET, effect, SET_TARGET)
    for one in found.failing:
        yield Problem(
            "notification_failed",
            one.target,
            "degraded",
            f"notifications to the target {one.target} fail; {one.messages:,} could not be sent",
            "this target receives no notifications; other targets, where set, still do",
            "`csi notify test` sends a message to each target; correct the address in `CSI_NOTIFY_URLS`, or the "
            "network of this machine; messages that were not sent are tried again",
            one.since,
            fails=("alert",),
            cause=NOT_ACCEPTED,
        )
