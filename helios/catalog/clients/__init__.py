"""PyIceberg's clients, with timeouts, connection pools and thread safety added. They are imported at the first use."""
