"""What SQL gives other values when a batch is run again, and that every declared step and write mode shows its SQL."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from helios import (
    Iceberg,
    aggregate,
    cast,
    dedupe,
    drop,
    expect,
    explode,
    join,
    rename,
    sample,
    select,
    sql,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.model.modes import MODES
from helios.model.step import Step
from helios.plan.typing.determinism import BARE, NONDETERMINISTIC, WITHOUT_ARGUMENTS, nondeterministic_function

pytestmark = pytest.mark.promise("typing")

FORMS = [
    "{}",
    " {} ",
    "abs({}) + 1",
    "CASE WHEN a THEN {} END",
    "name <> 'it''s' AND b < {}",
    "name <> 'it\\'s' AND b < {}",
    "1 -- why\n + {}",
    "1 /* why /* not */ */ + {}",
    "transform(list, x -> x + {})",
    "struct({}) AS s",
    "a:b.c > {}",
    # a column that has the name of a command
    "call > {}",
    "show = {}",
    "explain <= {}",
    "comment || {}",
    "SELECT id FROM input WHERE {}",
    "WITH t AS (SELECT {} AS x FROM input) SELECT * FROM t ORDER BY x",
    "SELECT * FROM input ORDER BY {} LIMIT 3",
    "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET x = {}",
]


@pytest.mark.parametrize("name", sorted(NONDETERMINISTIC))
def test_a_function_of_the_table_is_found_wherever_it_is_called(name: str) -> None:
    calls = [f"{name}()", f"{name.upper()} (\n)", f"`{name}`()"]
    calls += [f"{name}(3)"] if name not in WITHOUT_ARGUMENTS else []
    calls += [name, name.title()] if name in BARE else []
    texts = [form.format(call) for form in FORMS for call in calls]
    assert [text for text in texts if nondeterministic_function(text) != f"{name}()"] == []


@pytest.mark.parametrize(
    "text",
    [
        "'rand()'",
        "'it\\'s rand()'",
        '"now()"',
        "`rand()`",
        "`current_date`",
        "rand",
        "input.now",
        "input.current_date",
        "grand(1)",
        "to_uuid(a)",
        "unix_timestamp(ts)",
        "unix_timestamp('2026-01-01')",
        "/* uuid() */ 1",
        "day = 'today'",
        "cast('now' AS string)",
        "'tomorrow' || 1",
        "to_date(day, 'yyyy')",
        "tablesample",
        "hash(id)",
        "max(ts)",
    ],
)
def test_what_only_looks_like_one(text: str) -> None:
    texts = [form.format(text) for form in FORMS]
    assert [one for one in texts if nondeterministic_function(one) is not None] == []


@pytest.mark.parametrize(
    "text",
    [
        "DATE 'today'",
        "timestamp ' NOW '",
        "TIMESTAMP_NTZ 'now'",
        "cast('yesterday' AS date)",
        "try_cast('now' AS timestamp)",
        "'now'::timestamp",
        "to_date('tomorrow')",
        "date('today')",
        "to_timestamp('now')",
    ],
)
def test_texts_that_spark_reads_from_the_clock(text: str) -> None:
    found = nondeterministic_function(f"ts < {text}")
    assert found is not None
    assert found.strip("'") in text.lower()


@pytest.mark.parametrize("size", ["10 PERCENT", "5 ROWS", "BUCKET 1 OUT OF 4"])
@pytest.mark.parametrize("seed", ["", " REPEATABLE (7)"])
def test_samples(size: str, seed: str) -> None:
    assert nondeterministic_function(f"SELECT * FROM input TableSample ({size}){seed}") == "TABLESAMPLE"


def test_what_no_tokenizer_understands_is_refused() -> None:
    assert nondeterministic_function("name = 'open AND x < rand()") == "rand()"
    assert nondeterministic_function("name = 'open AND x < 1") is None


RANDOM = "cast(rand() * 10 AS bigint)"
EVALUATED = [
    where(f"id > {RANDOM}"),
    select("id", f"{RANDOM} AS n"),
    with_columns(n=RANDOM),
    sql(f"SELECT id, {RANDOM} AS n FROM input"),
    sql("SELECT id FROM input TABLESAMPLE (50 PERCENT)"),
    aggregate([f"{RANDOM} AS g"], n="count(*)"),
    aggregate("id", n=f"max({RANDOM})"),
    window("rand()", "1h").agg(n="count(*)"),
    window("ts", "1h").group_by(f"{RANDOM} AS g").agg(n="count(*)"),
    window("ts", "1h").agg(n=f"max({RANDOM})"),
    expect({"fair": f"id > {RANDOM}"}, on_fail="drop"),
    sample(0.1),
]
ORDERS = Iceberg.source("a.orders")
NAMED = [rename({"id": "n"}), drop("id"), cast(id="string"), dedupe("id"), watermark("ts", "1h"), explode("a", as_="e")]
"""Steps whose texts are names of columns and types."""
INNER = [join(ORDERS, on="id", how="semi"), union(ORDERS)]
"""Steps that bring in another flow, whose own steps are judged."""
OPAQUE = [step(lambda df: df)]
SINK = Iceberg.sink("a.t")


def kinds(shapes: list[Any]) -> set[type]:
    return {type(one) for shape in shapes for one in shape.steps}


def test_every_step_is_judged() -> None:
    assert kinds([*EVALUATED, *NAMED, *INNER, *OPAQUE]) == set(Step.__subclasses__())
    assert not kinds(EVALUATED) & kinds([*NAMED, *INNER, *OPAQUE])


@pytest.mark.parametrize("shape", EVALUATED, ids=lambda shape: shape.text())
def test_exactly_once_names_the_step_and_the_function(problems: Any, shape: Any) -> None:
    part = "TABLESAMPLE" if "TABLESAMPLE" in shape.text() else "rand()"
    expected = f"{shape.text()}: {part} gives other values when a batch is run again, so .exactly_once() cannot be kept"
    assert any(expected in problem for problem in problems(ORDERS >> shape >> SINK.exactly_once()))
    assert not any("gives other values" in problem for problem in problems(ORDERS >> shape >> SINK))
    side = ORDERS >> join(ORDERS >> shape, on="id") >> SINK.exactly_once()
    assert any(expected in problem for problem in problems(side))


@pytest.mark.parametrize("shape", [*NAMED, *INNER, *OPAQUE], ids=lambda shape: shape.text())
def test_other_steps_keep_the_demand(problems: Any, shape: Any) -> None:
    assert not any("exactly_once" in problem for problem in problems(ORDERS >> shape >> SINK.exactly_once()))


@pytest.mark.parametrize(
    ("sink", "part"),
    [
        (SINK.overwrite("ts < now()"), "overwrite where ts < now(): now()"),
        (SINK.upsert("id", order_by="rand()"), "upsert by id, newest by rand(): rand()"),
        (SINK.upsert("id", order_by="ts", delete_when="ts < current_date"), "current_date()"),
        (
            SINK.merge_sql(
                "MERGE INTO target USING (SELECT * FROM batch TABLESAMPLE (1 PERCENT)) b ON target.id = b.id "
                "WHEN NOT MATCHED THEN INSERT *"
            ),
            "TABLESAMPLE",
        ),
        (SINK.route(by="uuid()"), "route(uuid()): uuid()"),
    ],
)
def test_write_modes_are_judged(problems: Any, sink: Any, part: str) -> None:
    found = problems(ORDERS >> sink.exactly_once())
    assert any(f"{part} gives other values" in problem for problem in found), found


def test_predicates_of_a_source_are_judged(problems: Any) -> None:
    (problem,) = problems(ORDERS.where("ts < DATE 'today'") >> SINK.exactly_once())
    assert "where(ts < DATE 'today'): 'today' gives other values" in problem


def test_every_mode_shows_its_sql() -> None:
    """A text of a mode is either a key, or SQL that it evaluates."""
    texts = {"keys", "filter", "order_by", "delete_when", "query"}
    found = {name for mode in MODES for name, kind in mode.__annotations__.items() if "str" in str(kind)} - {"call"}
    assert found <= texts


@pytest.mark.parametrize(
    "declared",
    [
        "Memory.source([{'id': 1}]) >> where('id > 1') >> with_columns(n='hash(id)') >> Iceberg.sink('a.t')",
        "Files.source('x.csv') >> where('day > 1') >> Iceberg.sink('a.t').exactly_once()",
    ],
)
def test_most_texts_need_no_tokenizer(declared: str) -> None:
    """sqlglot takes 0.3 s to import: what no name of the table occurs in is judged without it."""
    code = (
        "from helios import *\nimport sys\nfrom helios.plan.checks.pipeline import exactly_once_problems\n"
        f"p = {declared}\nassert exactly_once_problems(p, p.sink) == []\nprint('sqlglot' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"
