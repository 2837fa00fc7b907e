"""The live page of a run, or of a lake: facts as plain values, an HTTP server, and static files; it writes nothing."""
