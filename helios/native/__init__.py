"""The columnar engine inside Spark's tasks: files in, files out; neither Spark nor a JVM is needed to run it."""
