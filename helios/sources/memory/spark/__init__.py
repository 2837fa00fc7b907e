"""Reads rows in memory with Spark."""
