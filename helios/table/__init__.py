"""Tables without a JVM: snapshots, refs, expiry, quarantine, and the pipelines that read and write them."""
