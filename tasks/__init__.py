"""Huey tasks, one module per step of the pipeline. A task calls the step and enqueues the wake-ups that it returns."""
