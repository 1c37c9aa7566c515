from tests.core.desk import desk

__all__ = ["desk"]
