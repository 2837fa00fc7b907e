"""Reads Iceberg tables with Spark."""
