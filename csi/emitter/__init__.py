"""How a batch is sent, and what an answer means."""
