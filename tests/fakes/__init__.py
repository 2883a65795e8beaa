"""Stand-ins for the outside world, one module each."""
