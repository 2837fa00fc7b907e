"""The checkpoint folder: its files, the lease on it, and the state of upserts."""
