"""The job ledger: the kinds of jobs, how one job runs, and how failures are handled."""
