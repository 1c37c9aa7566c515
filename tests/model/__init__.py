"""Random histories, run against every store and the reference."""
