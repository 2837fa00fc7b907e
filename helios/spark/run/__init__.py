"""Runs pipelines: validates their start, runs their batches and restarts them after outages."""
