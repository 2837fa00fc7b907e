"""Sources, a folder for each kind."""
