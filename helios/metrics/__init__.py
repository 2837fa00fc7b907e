"""Metrics of a run: counters, their Prometheus series, and the HTTP endpoint that serves them."""
