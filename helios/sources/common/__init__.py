"""The common parts of all kinds of sources."""
