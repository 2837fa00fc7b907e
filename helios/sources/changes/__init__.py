"""Changes of databases, and change logs, as sources."""
