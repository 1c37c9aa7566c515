"""One engine that holds every rule of the store, over a disk that only keeps rows."""
