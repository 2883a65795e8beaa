"""The problems of the ingester, and what all problems of one id have in common: where the operator reads about it."""

from dataclasses import dataclass

from csi.problems import PASSING_SECONDS, Check, ProblemKind, ProblemReport, Severity, explained_by, to_notify

__all__ = ["PASSING_SECONDS", "Check", "Severity", "explained_by", "to_notify"]

_LATE = ("backlog_old", "backlog_growing")
_NO_PROGRESS = ("source_stale", "watches_overdue", "host_outage", *_LATE)

KINDS: dict[str, ProblemKind] = {
    "worker_silent": ProblemKind(
        "worker", "the-worker-is-gone", "/schedule", explains=("threads_hung", "notifier_silent", *_NO_PROGRESS)
    ),
    "threads_hung": ProblemKind("worker", "threads-of-the-worker-hang", "/schedule"),
    "notifier_silent": ProblemKind("worker", "a-notification-was-not-sent"),
    "storage": ProblemKind(
        "database",
        "the-database-is-locked",
        explains=("worker_silent", "threads_hung", "notifier_silent", "disk_low", *_NO_PROGRESS),
    ),
    "clock_held": ProblemKind("clock", "a-clock-is-wrong", notifies=False, explains=_NO_PROGRESS),
    "watches_overdue": ProblemKind("watches", "the-worker-is-gone", "/sources", notifies=False),
    "source_stale": ProblemKind("watches", "a-source-is-not-read", "/sources"),
    "source_unusable": ProblemKind("config", "a-plugin-cannot-be-used", "/sources"),
    "host_outage": ProblemKind("source", "youtube-has-an-outage", "/sources"),
    "api_refused": ProblemKind("api", "the-api-refuses-access", "/sources"),
    "quota_spent": ProblemKind("api", "the-api-units-run-out", explains=("quota_low",)),
    "items_missed": ProblemKind("watches", "items-were-missed", "/sources"),
    "watch_denied": ProblemKind("watches", "a-watch-is-gone-or-private", "/sources"),
    "watch_gone": ProblemKind("watches", "a-watch-is-gone-or-private", "/sources"),
    "feed_stale": ProblemKind("watches", "a-watch-is-quiet-or-its-feed-is-stale", "/sources"),
    "watch_quiet": ProblemKind("watches", "a-watch-is-quiet-or-its-feed-is-stale", "/sources", notifies=False),
    "receiver_away": ProblemKind(
        "delivery",
        "the-receiver-answers-503-or-not-at-all",
        "/#destinations",
        explains=("backlog_old",),
        explains_own=("certificate_expiring", "backlog_growing"),
    ),
    "destination_paused": ProblemKind(
        "delivery",
        "delivery-is-paused-by-command",
        "/#destinations",
        explains=("backlog_old",),
        explains_own=("backlog_growing",),
    ),
    "delivery_off": ProblemKind("delivery", "delivery-is-switched-off", "/#waiting", explains=_LATE),
    "certificate_expiring": ProblemKind("certificate", "the-receivers-certificate-expires", "/#destinations"),
    "backlog_growing": ProblemKind("backlog", "the-receiver-is-too-slow", "/#waiting", explains=("backlog_old",)),
    "reading_slowed": ProblemKind(
        "backlog", "too-much-waits", "/#waiting", explains=("source_stale", "watches_overdue")
    ),
    "backlog_old": ProblemKind("backlog", "the-receiver-is-away-for-hours", "/#waiting"),
    "dead_letters": ProblemKind("letters", "dead-letters", "/dead-letters"),
    "jobs_dead": ProblemKind("jobs", "a-job-of-the-catalogue-is-dead-or-stuck", "/jobs"),
    "quota_low": ProblemKind("api", "the-api-units-run-out", "/#quota"),
    "reload_refused": ProblemKind("config", "a-reload-is-refused"),
    "disk_low": ProblemKind("disk", "the-disk-is-full"),
    "removal_held": ProblemKind("config", "the-configuration-removes-watches", "/sources"),
    "watches_removed": ProblemKind("config", "the-configuration-removes-watches", "/sources"),
    "backup_failed": ProblemKind("backup", "a-backup-is-old-or-failed", explains=("backup_old",)),
    "backup_old": ProblemKind("backup", "a-backup-is-old-or-failed"),
    "push_failing": ProblemKind("push", "the-hub-does-not-verify-or-push", "/sources", notifies=False),
    "push_ended": ProblemKind("push", "composio-pushes-nothing-any-more", "/sources"),
    "inbound_refused": ProblemKind("push", "webhooks-are-refused-or-fail"),
    "inbound_failed": ProblemKind("push", "webhooks-are-refused-or-fail"),
    "notification_failed": ProblemKind("notify", "a-notification-was-not-sent", "/notifications"),
    "no_notification_target": ProblemKind("notify", "no-notification-target-is-set", "/notifications", notifies=False),
}
PROBLEMS = tuple(KINDS)
ALERTS = tuple(name for name, kind in KINDS.items() if kind.notifies)
"""Ids of problems that operators are notified of."""


@dataclass(frozen=True)
class Problem(ProblemReport):
    """One thing that is wrong now in the ingester."""

    @property
    def kind(self) -> ProblemKind:
        return KINDS[self.id]
