"""Schema evolution: the ALTER TABLE clauses that a table needs for a stream, and the casts of the stream's rows."""
