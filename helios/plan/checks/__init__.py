"""Checks of declared pipelines: every problem that can be told before a JVM starts."""
