"""The event contract: event, signature, routing, text rules."""
