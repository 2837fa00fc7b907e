"""Types of columns and expressions, inferred without a JVM."""
