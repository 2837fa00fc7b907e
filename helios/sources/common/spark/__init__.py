"""The common parts of sources that need Spark."""
