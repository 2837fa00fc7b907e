"""Files as sources."""
