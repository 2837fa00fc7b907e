"""The live page of a run or of a lake: the facts that the page shows, an HTTP server, and static files."""
