"""Rows of the script as sources."""
