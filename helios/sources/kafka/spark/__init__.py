"""Reads Kafka topics with Spark."""
