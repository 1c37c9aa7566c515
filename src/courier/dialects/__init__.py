"""Other people's queue APIs, each in a folder of its own, over one core."""
