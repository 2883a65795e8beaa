"""The receiver's small dashboard: what came, how far it is, what it cost, what failed."""
