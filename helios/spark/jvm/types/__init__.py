"""Types of the JVM objects that Python reaches through py4j; they declare the methods that Helios calls."""
