"""The job ledger at work: what kinds of jobs there are, how one is run, and what becomes of it."""
