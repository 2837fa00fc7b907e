"""Executes a `Plan` on Spark."""
