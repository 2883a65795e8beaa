"""What the YouTube adapters share: Data API, Atom feed, feed guard, OAuth, ids and links."""
