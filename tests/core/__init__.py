"""The pure rules: no store, no server, no waiting."""
