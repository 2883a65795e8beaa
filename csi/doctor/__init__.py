"""The diagnosis that `csi doctor` prints: local checks, services, destinations."""
