"""The choice of pipelines for the columnar engine, and the programs that it runs for them."""
