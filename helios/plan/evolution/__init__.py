"""Schema evolution: the ALTERs that let a table take other columns, and the casts of the rows."""
