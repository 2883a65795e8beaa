"""The tables of processing, in a database of its own: one module per table."""
