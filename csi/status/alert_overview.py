"""Alerts that fire now, the last that were recorded, and how operators are notified."""

from dataclasses import dataclass

from csi.alerts import StoredAlert
from csi.runtime import Runtime, notification_targets
from csi.status.mutes import ActiveMutes, active_mutes
from csi.status.problems import Problem, to_notify
from csi.status.verdict import verdict
from csi.store import alerts, notification_log
from csi.store.notification_log import Notification

HISTORY = 20


@dataclass(frozen=True)
class AlertOverview:
    """Alerts that fire now, the last ones that were recorded, and how operators are notified."""

    services: int
    targets: tuple[str, ...]
    heartbeat: bool
    current: tuple[Problem, ...]
    recorded: tuple[StoredAlert, ...]
    notifications: tuple[Notification, ...]
    muting: ActiveMutes

    def is_muted(self, alert: StoredAlert) -> bool:
        """No message of this alert was sent, because it is or was muted."""
        is_muted_now = alert.resolved_at is None and self.muting.covers(alert.name)
        return alert.was_muted or (alert.notified_at is None and is_muted_now)


def firing(rt: Runtime) -> list[Problem]:
    """The problems that operators are notified of, judged now."""
    return to_notify(verdict(rt).problems)


def alert_overview(rt: Runtime) -> AlertOverview:
    targets = tuple(target.name for target in notification_targets(rt.settings))
    return AlertOverview(
        services=len(targets),
        targets=targets,
        heartbeat=rt.settings.secrets.heartbeat_url is not None,
        current=tuple(firing(rt)),
        recorded=tuple(alerts.latest(HISTORY)),
        notifications=tuple(notification_log.latest(HISTORY)),
        muting=active_mutes(rt),
    )
