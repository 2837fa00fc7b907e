"""Access to the JVM: its classes, its errors, and small values as DataFrames."""
