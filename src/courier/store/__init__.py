"""The disks: what keeps the state and the journal that the core asks for."""
