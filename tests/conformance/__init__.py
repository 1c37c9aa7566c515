"""Suites written once and run over every implementation of a seam."""
