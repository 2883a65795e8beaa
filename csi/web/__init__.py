"""The sidecar's pages: health, metrics, admin API."""
