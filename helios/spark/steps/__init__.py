"""The steps in Spark: one file per declared step, and materialized views."""
