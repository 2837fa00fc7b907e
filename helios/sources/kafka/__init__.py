"""Topics as sources."""
