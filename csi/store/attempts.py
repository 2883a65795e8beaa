"""One row per request: written before it is sent, finished when it is answered."""

from csi.store.models import DeliveryAttempt

ANSWER_CHARS = 2_000


def start(batch_id: int | None, destination: str, request_id: str, attempt: int, form: str, now: float) -> int:
    return int(
        DeliveryAttempt.insert(
            batch_id=batch_id,
            destination=destination,
            request_id=request_id,
            attempt=attempt,
            form=form,
            started_at=now,
            outcome="sending",
        ).execute()
    )


def finish(
    attempt_id: int,
    outcome: str,
    now: float,
    *,
    status: int | None = None,
    reason: str = "",
    answer: str = "",
) -> None:
    DeliveryAttempt.update(
        outcome=outcome,
        finished_at=now,
        status=status,
        reason=reason or None,
        answer=answer[:ANSWER_CHARS] or None,
    ).where(DeliveryAttempt.id == attempt_id).execute()


def interrupt(batch_id: int, now: float) -> int:
    """Close attempts whose process went away: whether they arrived is not known."""
    open_ones = (DeliveryAttempt.batch_id == batch_id) & (DeliveryAttempt.outcome == "sending")
    return int(DeliveryAttempt.update(outcome="interrupted", finished_at=now).where(open_ones).execute())


def of_batch(batch_id: int) -> list[DeliveryAttempt]:
    return list(DeliveryAttempt.select().where(DeliveryAttempt.batch_id == batch_id).order_by(DeliveryAttempt.id))
