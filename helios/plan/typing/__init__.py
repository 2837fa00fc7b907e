"""Types of columns and expressions: what a stream carries, known without a JVM."""
