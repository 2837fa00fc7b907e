"""Reads database changes with Spark."""
