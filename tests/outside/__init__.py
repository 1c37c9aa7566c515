"""Unmodified clients of other people against a running server."""
