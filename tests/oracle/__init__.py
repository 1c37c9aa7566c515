"""The oracle: what every store must do, in plain dicts and lists.

It shares no mechanism with the engine.
"""
