"""From a received signal to transcript, summary, artifact and digest. It is not a part of the ingester (PRD §2.3)."""
