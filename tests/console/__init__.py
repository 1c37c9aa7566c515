"""The console: pure functions, pages through the front door, a real browser."""
