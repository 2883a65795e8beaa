"""Huey's side of the walk: one module per step. A task calls the step and wakes what it returned; it has no rules."""
