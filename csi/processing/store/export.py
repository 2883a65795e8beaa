"""A whole collection, document by document, in the specification's shape."""

import json
from collections.abc import Iterator

from csi.processing.documents import COLLECTIONS, Document
from csi.processing.store.db import run

_TABLES = {
    "videos": "SELECT doc FROM videos ORDER BY video_id",
    "jobs/transcription": "SELECT doc FROM jobs WHERE collection = 'jobs/transcription' ORDER BY job_id",
    "jobs/summarization": "SELECT doc FROM jobs WHERE collection = 'jobs/summarization' ORDER BY job_id",
    "audit_logs": "SELECT doc FROM audit_logs ORDER BY seq",
    "jobs_deadletter": "SELECT doc FROM dead_jobs ORDER BY job_id",
    "run_events": "SELECT doc FROM runs ORDER BY run_id",
}


def documents(collection: str) -> Iterator[Document]:
    """Checked once more on the way out: what an export holds is what the specification says."""
    model = COLLECTIONS[collection]
    for row in run(_TABLES[collection]):
        yield model.model_validate(json.loads(row[0]))
