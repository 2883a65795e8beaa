"""A simulated YouTube and the one-command demo."""
