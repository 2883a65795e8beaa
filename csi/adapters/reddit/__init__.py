"""What the Reddit adapter is made of: its settings, the two ways to read a listing."""
