"""The one-command demo: the whole product on one machine, against the simulated YouTube."""
