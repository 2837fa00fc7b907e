"""The live page of a run or of a lake: its facts, its HTTP server and its static files. It writes nothing."""
