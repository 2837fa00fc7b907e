"""What the sources of all kinds have in common."""
