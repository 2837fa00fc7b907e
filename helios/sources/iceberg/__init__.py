"""Iceberg tables as sources."""
