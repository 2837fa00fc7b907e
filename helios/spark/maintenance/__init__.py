"""Maintenance of tables: compaction, expiry of snapshots, and removal of orphan files."""
