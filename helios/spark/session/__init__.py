"""The Spark session: its configuration, its executors, and the user's code on them."""
