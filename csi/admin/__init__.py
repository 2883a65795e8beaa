"""Operator actions: watches, replay of dead letters, the parallel run, the copy to PostgreSQL."""
