"""Stand-ins for outside services, used by tests, benchmarks and the demo."""
