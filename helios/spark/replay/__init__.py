"""Rejected rows: replays them from the quarantine, and discards audited batches."""
