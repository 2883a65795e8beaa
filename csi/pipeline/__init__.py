"""The pipeline, one module per step in the order an item travels: schedule, poll, ingest, flush, deliver, settle."""
