"""The driver's side of the columnar engine: plans the files, runs the tasks, and commits what they have written."""
