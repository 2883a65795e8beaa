"""Which audit actions touch personal or confidential text: the audit log's `sensitive_data`, in one table."""

SPEECH = "speech of people in a video"
DERIVED = "text derived from speech of people in a video"
PEOPLE = "a person's name, or a note that a person wrote"

SENSITIVE_TEXT: dict[str, str | None] = {
    "route": None,  # published titles and ids
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
    "provider_call": SPEECH,  # the call failed, but its text was sent, and the error may quote it
    "dead_letter": None,  # the payload contains no text of the video
    "notify": DERIVED,
    "budget_alert": None,
    "dlq_assign": PEOPLE,
    "dlq_note": PEOPLE,
    "dlq_resolved": PEOPLE,
    "dlq_abandoned": PEOPLE,
    "dlq_retry": None,
}
"""Every action of the audit log without its suffix (`fetch:captions`), and the sensitive text it touches, if any."""


def is_sensitive(action: str) -> bool:
    """An action that is missing in the table counts as sensitive."""
    return SENSITIVE_TEXT.get(action.partition(":")[0], SPEECH) is not None
