"""Pipelines of other kinds that do the same job, to be measured beside ours."""
