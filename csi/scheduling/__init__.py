"""When a source is read: pure rules that never touch the clock, the database or the network."""
