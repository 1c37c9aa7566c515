"""Measures Courier beside its own floor and beside other brokers; `python -m bench`."""
