"""What tests run CSI in: one thread with a manual clock, real processes, or an operator's database and commands."""
