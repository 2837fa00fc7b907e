"""Files of a folder, without a JVM."""
