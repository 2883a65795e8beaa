"""The color class of each status, as in the sidecar's dashboard."""

STATUS_COLORS = {
    "summarized": "good", "completed": "good", "resolved": "good", "replayed": "good", "success": "good",
    "discovered": "wait", "transcription_queued": "wait", "transcribed": "wait", "queued": "wait", "submitted": "wait",
    "processing": "wait", "running": "wait", "replaying": "wait", "process": "wait", "retrying": "warn",
    "investigating": "warn", "partial": "warn", "unrouted": "warn", "failed": "bad", "failure": "bad", "pending": "bad",
    "open": "bad", "unusable": "bad",
}  # fmt: skip
