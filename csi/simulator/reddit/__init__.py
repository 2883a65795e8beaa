"""A simulated Reddit."""
