"""Which pipelines the columnar engine can run, and the programs that it then runs."""
