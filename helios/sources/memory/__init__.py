"""Rows in memory as sources."""
