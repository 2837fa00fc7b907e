"""Differences of the rows of two states."""
