"""Maintenance of tables: compaction, expiry, orphan files, manifests."""
