"""Tables as sources."""
