"""The declared steps, one in each file: its value and its traits.

The columns that a step gives are in the file of the same name in `helios.plan.typing.steps`, and the calls of Spark
that it becomes in `helios.spark.steps`. Strings are Spark SQL expressions, and their text shows in the plan.
"""
