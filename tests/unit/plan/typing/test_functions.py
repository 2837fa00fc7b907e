"""Functions that Spark does not have are found without a JVM, and none that it has is."""

from __future__ import annotations

from typing import Any

import pytest

from helios import Iceberg, aggregate, expect, select, sql, where, with_columns
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.plan.typing.expression import parse
from helios.plan.typing.functions import UnknownFunction, unknown_functions

pytestmark = pytest.mark.promise("typing")

ORDERS = Iceberg.source("a.orders")
SINK = Iceberg.sink("a.t")


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (ORDERS >> where("upperr(name) = 'A'") >> SINK, "no function 'upperr' of its own. Did you mean 'upper'?"),
        (ORDERS >> with_columns(n="1 + wheree_x(id)") >> SINK, "no function 'wheree_x'"),
        (ORDERS >> select("id", "regexp_extrakt(name, 'a', 0) AS a") >> SINK, "Did you mean 'regexp_extract'?"),
        (ORDERS >> expect({"ok": "isnann(id)"}, on_fail="drop") >> SINK, "Did you mean 'isnan'?"),
        (ORDERS >> aggregate("name", n="summ(id)") >> SINK, "Did you mean 'sum'?"),
        (ORDERS >> sql("SELECT lowerr(name) AS n FROM input WHERE id > 1") >> SINK, "Did you mean 'lower'?"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.text(),
)
def test_an_unknown_function(problems: Any, pipeline: Any, message: str) -> None:
    [problem] = problems(pipeline)
    assert message in problem
    assert "test_functions.py:" in problem


def test_a_run_leaves_it_to_spark(context: Context) -> None:
    pipeline = ORDERS >> where("my_own(name)") >> SINK
    plans, problems = compile_pipelines([pipeline], context, lenient=True)
    assert [type(problem) for problem in problems] == [UnknownFunction]
    assert require_runnable(plans, problems) == plans


@pytest.mark.parametrize(
    "text",
    [
        "local.system.bucket(16, id)",
        "system.days(ts)",
        "overlay(name PLACING 'a' FROM 1)",
        "timestampadd(HOUR, 1, ts)",
        "datediff(MONTH, ts, ts)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY id)",
        "listagg(name, ',')",
        "transform(array(id), x -> x + 1)",
        "IF(id > 1, struct(id), named_struct('id', id))",
        "BIGINT(name) + int('1')",
        "try_to_timestamp(name) IS NULL AND date '2026-01-01' < current_date()",
    ],
)
def test_what_spark_knows(text: str) -> None:
    assert unknown_functions(parse(text, text, None), text, None) == []
