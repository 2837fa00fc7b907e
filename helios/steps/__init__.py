"""The declared steps: each file has the class of one step, with its traits, and the function that scripts call.

The file of the same name in `helios.plan.typing.steps` infers the columns after the step, and the file of the same name
in `helios.spark.steps` applies the step in Spark. Strings are Spark SQL expressions; the plan shows their text.
"""
