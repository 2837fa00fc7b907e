"""Rejected rows: replaying them from the quarantine, and discarding an audited batch."""
