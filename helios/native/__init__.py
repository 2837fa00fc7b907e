"""The columnar engine. It runs in Spark's tasks, and reads and writes files without Spark or a JVM."""
