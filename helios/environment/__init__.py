"""Java, the jars of a run and the class archive: what Spark starts with. Standard library and small helpers only."""
