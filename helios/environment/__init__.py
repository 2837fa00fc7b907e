"""The environment of Spark: Java, jars and the class archive. Standard library and small helpers only."""
