"""The configuration: settings models, the loader, problems with line and column, secrets, durations."""
