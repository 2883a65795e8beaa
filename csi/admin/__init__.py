"""What operators change: watches, destinations, dead letters, the parallel run, the copy to PostgreSQL."""
