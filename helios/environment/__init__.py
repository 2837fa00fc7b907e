"""Prepares what Spark needs: Java, jars and the class archive. It imports only the standard library and helpers."""
