"""The user's own MERGE is looked at before a run."""

from __future__ import annotations

import pytest

from helios.errors import InputError, Origin
from helios.plan.checks.merge import inserts_only, merge_problems
from helios.plan.typing.expression import UnparsedExpression
from helios.plan.typing.schema import from_ddl

pytestmark = pytest.mark.promise("merge-sql")

WHERE = Origin("script.py", 3)
BATCH = from_ddl("id bigint, amount double, op string, s struct<a:int>")
TARGET = from_ddl("id bigint, total double, seen timestamp")
BY_ID = "MERGE INTO target USING batch ON target.id = batch.id "


@pytest.mark.parametrize(
    "query",
    [
        BY_ID + "WHEN MATCHED THEN UPDATE SET total = target.total + batch.amount",
        BY_ID + "WHEN MATCHED AND batch.op = 'd' THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (batch.id)",
        BY_ID + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        BY_ID + "WHEN NOT MATCHED BY SOURCE AND target.total > 1 THEN UPDATE SET seen = current_timestamp()",
        BY_ID + "WHEN MATCHED AND batch.s.a > 1 THEN UPDATE SET target.TOTAL = amount",
        "MERGE INTO target t USING batch b ON t.id = b.id WHEN MATCHED THEN UPDATE SET t.total = b.amount",
        "MERGE INTO target USING (SELECT id, max(amount) AS m FROM batch GROUP BY id) b ON target.id = b.id "
        "WHEN MATCHED THEN UPDATE SET total = b.m",
        "MERGE INTO target USING (SELECT b.id AS k FROM batch b JOIN target t ON b.id = t.id) AS batch "
        "ON target.id = batch.k WHEN MATCHED THEN DELETE",
        "merge into target using batch on target.id = batch.id and target._file = 'x' when matched then delete",
    ],
)
def test_what_spark_takes_is_taken(query: str) -> None:
    assert merge_problems(query, BATCH, TARGET, WHERE) == []
    assert merge_problems(query, None, None, WHERE) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "MERGE INTO target USING batch ON target.id = batch.di WHEN MATCHED THEN DELETE",
            "no column 'di' in 'batch'. Known: amount, id, op, s.",
        ),
        (BY_ID + "WHEN MATCHED AND target.totl > 1 THEN DELETE", "no column 'totl' in 'target'. Did you mean 'total'?"),
        (BY_ID + "WHEN MATCHED THEN UPDATE SET totl = 1", "no column 'totl' in 'target'. Did you mean 'total'?"),
        (
            BY_ID + "WHEN NOT MATCHED THEN INSERT (id, sen) VALUES (batch.id, now())",
            "no column 'sen' in 'target'. Did you mean 'seen'?",
        ),
        (
            "MERGE INTO target t USING batch b ON t.id = b.op2 WHEN MATCHED THEN DELETE",
            "no column 'op2' in 'b'. Did you mean 'op'?",
        ),
        ("MERGE INTO orders USING batch ON true WHEN MATCHED THEN DELETE", "it changes 'orders', not 'target'"),
        ("MERGE INTO target USING other ON true WHEN MATCHED THEN DELETE", "reads 'other', which does not exist"),
        ("MERGE INTO target USING bach ON true WHEN MATCHED THEN DELETE", "Did you mean 'batch'?"),
        (
            "MERGE INTO target USING (SELECT 1 AS id) b ON target.id = b.id WHEN MATCHED THEN DELETE",
            "does not read the rows, 'batch'",
        ),
        (BY_ID + "WHEN MATCHED THEN DELETE; DROP TABLE x", "2 statements, not one"),
    ],
)
def test_refusals(query: str, message: str) -> None:
    (problem,) = merge_problems(query, BATCH, TARGET, WHERE)
    assert message in str(problem)
    assert str(problem).startswith("script.py:3: merge_sql(MERGE INTO ")
    assert not isinstance(problem, UnparsedExpression)


@pytest.mark.parametrize("query", ["MERGE INTO target USING batch ON (", "SELECT 1", "MERGE INTO"])
def test_what_is_not_understood_is_left_to_spark(query: str) -> None:
    (problem,) = merge_problems(query, BATCH, TARGET, WHERE)
    assert isinstance(problem, UnparsedExpression)
    assert isinstance(problem, InputError)


@pytest.mark.parametrize(
    ("clauses", "only"),
    [
        ("WHEN NOT MATCHED THEN INSERT *", True),
        ("WHEN NOT MATCHED BY TARGET AND batch.id > 1 THEN INSERT (id) VALUES (batch.id)", True),
        ("WHEN MATCHED AND batch.id > 1 THEN DELETE WHEN NOT MATCHED THEN INSERT *", False),
        ("WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE", False),
        ("what nobody can tell", True),
    ],
)
def test_a_merge_that_only_inserts(clauses: str, only: bool) -> None:
    assert inserts_only(f"MERGE INTO target USING batch ON target.id = batch.id {clauses}") is only
