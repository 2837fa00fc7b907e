"""Decides which pipelines run on the columnar engine, and compiles their steps to its programs."""
