"""The fault harness: cases of the catalogue, each with an oracle line of numbers."""
