"""The columns of each step's result, and its problems that are known before a run. Each step has a file of its name."""
