"""Courier: a self-hosted message broker that speaks existing queue APIs over one core."""

__version__ = "0.1.0"
