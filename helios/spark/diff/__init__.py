"""Compares the rows of two snapshots, of one table or of two."""
