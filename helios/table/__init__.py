"""Reads and changes tables without a JVM: snapshots, refs, expiry, quarantines, and the state of pipelines."""
