"""The catalogue: what is known of channels and videos, and the work that keeps it fresh."""
