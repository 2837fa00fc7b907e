"""Functions of Spark ML in a JVM that Helios has started: Spark's own extension would have registered them."""

from __future__ import annotations

import pytest

from tests.streaming.conftest import World

pytestmark = pytest.mark.promise("steps")


def test_vectors_are_made_and_taken_apart(world: World) -> None:
    from pyspark.ml.functions import array_to_vector, vector_to_array  # here: the import registers them

    rows = world.spark.sql("SELECT array(1.5D, -2.0D) AS a").select(array_to_vector("a").alias("v"))
    assert [list(row["a"]) for row in rows.select(vector_to_array("v").alias("a")).collect()] == [[1.5, -2.0]]
