"""The other side of the wire: verify, accept, remember."""
