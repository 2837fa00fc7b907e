"""The lineage of a table's rows, read from manifests, data files and the stamps of commits, without a JVM."""
