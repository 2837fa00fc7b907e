"""Benchmarks as data: workloads, the processes of their contenders, what they use, and the report of it all."""
