"""Executes a `Plan`: the only package that imports pyspark."""
