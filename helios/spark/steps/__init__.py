"""Steps: each declared step on a DataFrame, and materialized views."""
