"""The walk of one item, one file a step: plan, poll, ingest, flush, deliver, rescue."""
