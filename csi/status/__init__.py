"""What operators ask, computed once for every surface. Nothing here writes."""
