"""From a received signal to transcript, summary, artifact and digest. Never a part of the ingester (PRD §2.3)."""
