"""The receiver of signed batches: verify them, store each signal once, answer."""
