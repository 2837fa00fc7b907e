"""Kafka topics as sources, and a topic as a sink."""
