"""Processing's dashboard, served by the receiver: signals, videos, runs, budget and dead letters. It only reads."""
