"""Speed and footprint, measured side by side: `make bench`, or one part of it: `make bench PART=line`."""
