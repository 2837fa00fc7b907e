"""Schema evolution: the ALTERs of the table, and the casts of the rows."""
