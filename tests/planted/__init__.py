"""Planted faults: one-line mistakes, each with the test that catches it. Run by `make faults`."""
