"""The list of Spark's functions, by which `check` finds unknown ones, is that of the running Spark."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from helios import Iceberg, aggregate
from helios.errors import HeliosError
from helios.plan.typing.functions import BUILT_IN
from helios.spark.run.run import PipelineRun

pytestmark = pytest.mark.promise("typing")


@pytest.mark.landing
def test_the_list_of_functions_is_sparks(world: Any) -> None:
    listed = {row[0] for row in world.sql("SHOW SYSTEM FUNCTIONS")}
    names = {name for name in listed if re.fullmatch(r"\w+", name)}
    assert names <= BUILT_IN
    if world.spark.version.startswith("4.1."):
        assert names == BUILT_IN


def test_spark_refuses_a_count_of_distinct_values_when_the_query_starts(world: Any) -> None:
    world.fill("a.s", range(3), k="'x'")
    source = Iceberg.source("a.s", catalog=world.catalog).incremental(poll=1)
    sink = world.sink("a.t").upsert("k")
    plan = world.plan(source >> aggregate("k", n="approx_count_distinct(id)") >> sink)
    distinct = source >> aggregate("k", n="count(DISTINCT id)") >> sink
    with pytest.raises(HeliosError, match="Distinct aggregations are not supported on streaming"):
        PipelineRun(
            replace(plan, stream=distinct.stream, declared=distinct), world.spark, once=True
        ).start().await_termination(60)
