"""The simulated YouTube: Atom feeds, Data API, captions and OAuth tokens, with scripted faults."""
