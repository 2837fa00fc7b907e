"""Folders of files as sources: what is listed, what was read, and how far; without a JVM."""
