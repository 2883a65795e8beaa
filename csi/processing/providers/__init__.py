"""Who transcribes and who summarises: each provider behind one small interface."""
