"""PyIceberg's clients with timeouts, connection pools and thread safety added; loaded at the first use."""
