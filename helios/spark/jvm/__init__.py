"""Access to the JVM: its classes, its errors, and DataFrames of a few given values."""
