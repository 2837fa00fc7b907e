"""Sinks: where batches are found, staged and committed exactly once."""
