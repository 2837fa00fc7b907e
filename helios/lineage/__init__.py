"""Where the rows of a table come from: by manifests, data files and the stamps of commits, without a JVM."""
