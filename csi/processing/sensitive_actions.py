"""Which acts touch personal or confidential text: the audit log's `sensitive_data`, in one table."""

SPEECH = "what people say in a video"
DERIVED = "text made of what people say in a video"
PEOPLE = "a person's name, or words that a person wrote"

TOUCHED: dict[str, str | None] = {
    "route": None,  # titles and ids, as they are published
    "skip": None,
    "queue_transcription": None,
    "fetch": SPEECH,
    "upload": SPEECH,
    "submit": SPEECH,
    "find_submitted": None,  # a list of ids
    "look": SPEECH,
    "transcribed": SPEECH,
    "complete": SPEECH,
    "summarized": DERIVED,
    "resume": None,  # names of documents
    "provider_call": SPEECH,  # it failed, but what was asked went out, and the error may quote it
    "dead_letter": None,  # the letter's payload has no text of the video in it
    "notify": DERIVED,
    "budget_alert": None,
    "dlq_assign": PEOPLE,
    "dlq_note": PEOPLE,
    "dlq_resolved": PEOPLE,
    "dlq_abandoned": PEOPLE,
    "dlq_retry": None,
}
"""Every action of the audit log; what follows a colon (`fetch:captions`) does not matter. None: nothing of the kind."""


def is_sensitive(action: str) -> bool:
    """An action that nobody judged counts as sensitive: rather too much than too little."""
    return TOUCHED.get(action.partition(":")[0], SPEECH) is not None
