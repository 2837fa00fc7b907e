"""The columns that each declared step gives, in a file of its name, and the problems that can be told before a run."""
