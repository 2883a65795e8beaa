"""The csi command, one file per command group."""
