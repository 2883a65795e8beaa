"""Read models: rows of several tables for people, charts, search and objectives. Nothing here writes."""
