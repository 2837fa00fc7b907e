"""Iceberg tables as sources: their rows, or their row-level changes."""
