"""The JVM's objects as Python sees them through py4j: the methods that Helios calls, with their types."""
