"""Read a whole collection, document by document, in the specification's shape."""

import json
from collections.abc import Iterator

from csi.processing.collection_models import COLLECTIONS, SpecDocument
from csi.processing.store.db import run

_QUERIES = {
    "videos": "SELECT doc FROM videos ORDER BY video_id",
    "jobs/transcription": "SELECT doc FROM jobs WHERE collection = 'jobs/transcription' ORDER BY job_id",
    "jobs/summarization": "SELECT doc FROM jobs WHERE collection = 'jobs/summarization' ORDER BY job_id",
    "audit_logs": "SELECT doc FROM audit_logs ORDER BY seq",
    "jobs_deadletter": "SELECT doc FROM dead_jobs ORDER BY job_id",
    "run_events": "SELECT doc FROM runs ORDER BY run_id",
}


def collection_documents(collection: str) -> Iterator[SpecDocument]:
    """Each document is validated again: an export contains only what the specification allows."""
    model = COLLECTIONS[collection]
    for row in run(_QUERIES[collection]):
        yield model.model_validate(json.loads(row[0]))
