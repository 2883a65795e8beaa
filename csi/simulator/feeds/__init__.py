"""Simulated ordinary feeds: blogs, podcasts and JSON feeds on one port."""
