"""Tables of the catalogue: channels, videos, statistics, jobs, archives, partitions."""
