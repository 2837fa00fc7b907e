"""Loaded tables: their snapshots and, later, their maintenance."""
