"""The part of `helios.testing` that needs Spark."""
