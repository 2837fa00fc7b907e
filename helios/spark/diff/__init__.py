"""The differences between the rows of two states of tables."""
