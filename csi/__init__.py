"""Creator Signal Intelligence: from a creator's new item to a signed, acknowledged delivery."""

__version__ = "1.1.0"
