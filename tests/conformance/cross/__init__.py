"""Two dialects over one core: what is done through one, seen through the other."""
