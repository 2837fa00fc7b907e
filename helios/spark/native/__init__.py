"""The driver's part of the columnar engine: plans the files, runs the tasks, and commits the files that they write."""
