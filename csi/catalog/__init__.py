"""The catalogue: channels, videos and their statistics, and the jobs that keep them fresh."""
