"""Types of JVM objects: protocols with the Java methods that Helios calls through py4j."""
