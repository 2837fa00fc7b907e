"""The declared steps: each file has the value and the traits of one step.

The file of the same name in `helios.plan.typing.steps` infers the columns of the step's result, and that in
`helios.spark.steps` applies the step in Spark. Strings are Spark SQL expressions; the plan shows their text.
"""
