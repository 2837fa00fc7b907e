"""Infers the columns after each step, and finds problems before a run. Each step has a file of its name."""
