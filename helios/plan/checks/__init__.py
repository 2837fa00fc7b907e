"""Checks of declared pipelines: every problem that is known before a JVM starts."""
