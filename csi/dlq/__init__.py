"""Dead letters: events and items that were given up; replay, search, discard."""
