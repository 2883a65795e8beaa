"""httpx and httpcore, imported without the optional parts that they load and CSI does not use."""

from csi.import_blocker import without

with without("httpx._main", "trio"):  # a command line with rich and pygments, and a second event loop: 7 MB
    import h11
    import httpcore
    import httpx

__all__ = ["h11", "httpcore", "httpx"]
