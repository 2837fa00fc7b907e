from __future__ import annotations

import ast
import logging
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import helios
from helios.errors import DeclarationError, HeliosError, NotFound
from helios.model.call import Call
from helios.model.flow import Transform
from helios.model.step import Step
from helios.plan.typing.expression import UnparsedExpression
from helios.plan.typing.infer import infer
from helios.plan.typing.schema import Column, Schema, from_ddl
from helios.sources.memory.declare import Memory
from helios.steps.aggregate import aggregate, window
from helios.steps.cast import cast
from helios.steps.dedupe import dedupe
from helios.steps.drop import drop
from helios.steps.expect import expect
from helios.steps.explode import explode
from helios.steps.join import JOIN_KINDS, join
from helios.steps.rename import rename
from helios.steps.sample import sample
from helios.steps.select import select
from helios.steps.sql import sql
from helios.steps.union import union
from helios.steps.watermark import watermark
from helios.steps.where import where
from helios.steps.with_columns import with_columns

pytestmark = pytest.mark.promise("typing")

COLUMNS = from_ddl(
    "id bigint NOT NULL, i int, amount double, price decimal(10,2), qty int, name string, ts timestamp, "
    "tn timestamp_ntz, d date, flag boolean, s struct<a:int,b:string,c:struct<x:double>>, arr array<int>, "
    "m map<string,bigint>, bin binary, f float, sm smallint, ti tinyint, `my col` string, "
    "aa array<struct<k:string,v:int>>"
)
OTHER = from_ddl("id int NOT NULL, zz string NOT NULL, k date")
FLOW = Memory.source([{"id": 1}])
OLDER = tuple(map(int, version("sqlglot").split(".")[:2])) < (30, 30)


def after(
    transform: Transform, schema: Schema | None = COLUMNS, other: Schema | None = None
) -> tuple[Schema | None, list[HeliosError]]:
    problems: list[HeliosError] = []
    for step in transform.steps:
        schema, found = infer(step, schema, other)
        problems += found
    return schema, problems


def clean(transform: Transform, schema: Schema | None = COLUMNS, other: Schema | None = None) -> dict[str, str]:
    """Names and types behind steps that have no problem."""
    result, problems = after(transform, schema, other)
    assert problems == []
    assert result is not None
    return {c.name: c.type for c in result.columns}


def only_problem(transform: Transform, schema: Schema | None = COLUMNS, other: Schema | None = None) -> HeliosError:
    _, problems = after(transform, schema, other)
    assert len(problems) == 1, [str(p) for p in problems]
    assert problems[0].where is not None
    assert problems[0].where.file.endswith("test_infer.py")
    return problems[0]


@pytest.mark.parametrize("kind", Step.__subclasses__(), ids=lambda kind: kind.call())
def test_a_step_has_files_of_its_name_with_its_columns_and_its_lowering(kind: type[Step]) -> None:
    name = kind.__module__.rpartition(".")[2]
    for package, function in (("plan/typing/steps", "columns"), ("spark/steps", "apply_step")):
        tree = ast.parse((Path(helios.__file__).parent / package / f"{name}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_step_without_traits_does_not_import() -> None:
    with pytest.raises(TypeError, match="Guess has no traits: a step says what it does with rows"):
        type("Guess", (Step,), {})


def test_a_callable_hides_the_columns() -> None:
    assert infer(Call(function=lambda df: df), COLUMNS) == (None, [])


# Types of expressions: what Spark 4.1.4 itself answered.

SPARK_TYPES = [
    tuple(line.rsplit(" => ", 1))
    for line in (Path(__file__).parent / "spark_types.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("expression", "kind"), SPARK_TYPES, ids=[e for e, _ in SPARK_TYPES])
def test_an_expression_has_the_type_that_spark_gives_it(expression: str, kind: str) -> None:
    found = clean(with_columns(new=expression))["new"]
    # What an older sqlglot parses otherwise is unknown, and never of another type.
    assert found == kind or (OLDER and "unknown" in found)


@pytest.mark.parametrize(
    "expression",
    [
        "luhn_check(id)",
        "coalesce(name, id)",
        "name + 1",
        "array_remove(arr, 1L)",
        "if(flag, 'a', 1)",
        "price + 1L",
        "i - 1 || name",
        "m.k + name",
    ],
)
def test_where_sparks_rule_is_not_certain_the_type_is_unknown(expression: str) -> None:
    assert clean(with_columns(new=expression))["new"] == "unknown"


# No false alarms: Spark 4.1.4 accepts every one of these over COLUMNS.

VALID = """
id | ID | `my col` | `id` | s.a | S.A | s.c.x | s.* | * | aa.k | m.anything | input.id | `s`.`a`
named_struct('a b', 1).`a b` | transform(arr, x -> x + id) | aggregate(arr, 0, (acc, x) -> acc + x, acc -> acc * 2)
map_filter(m, (k, v) -> v > 1) | filter(aa, e -> e.k = 'x')
array_sort(arr, (l, r) -> case when l < r then -1 else 1 end) | transform(arr, (a, ix) -> a + ix)
transform(aa, q -> struct(q.k as kk, q.v)) | transform(arr, a -> transform(arr, b -> a + b))
exists(arr, a -> a > 1) | zip_with(arr, arr, (a, b) -> a + b) | reduce(arr, 0, (a, b) -> a + b) | explode(arr)
explode(m) as (k, v) | posexplode(arr) as (p, v) | inline(aa) | stack(2, 1, 2) | json_tuple(name, 'a', 'b')
current_date | user | session_user | current_timestamp | localtimestamp() | timestampdiff(HOUR, ts, now())
timestampadd(DAY, 1, ts) | dateadd(MONTH, 1, d) | datediff(DAY, d, d) | date_diff(WEEK, d, d)
extract(hour from ts) | extract(DAYOFWEEK from ts) | date_part('hour', ts) | window(ts, '1 hour')
session_window(ts, '5 minutes') | interval 1 day | ts + interval '1:2' hour to minute | interval 1 year 2 months
struct(*) | struct(id, s.*) | count(*) | count(distinct id, name) | id as `a b` | id x | trim(both 'x' from name)
position('a' in name) | substring(name from 1 for 2) | overlay(name placing 'x' from 1) | name ilike any ('x', 'y')
name like 'x' escape '/' | id not in (1, 2) | try_cast(name as int) | name::int | from_json(name, 'a int').a
from_json(name, 'array<int>')[0] | x'1F' | r'abc' | 'it''s' | "dq" | id -- comment | /* c */ id | !flag | id == 1
id <=> 1 | percentile_cont(0.5) within group (order by amount) | first(name) ignore nulls
sum(id) filter (where flag) | row_number() over (partition by i order by id desc nulls last)
lag(name, 1, 'x') over (order by id) | sum(i) over (order by id rows between 1 preceding and current row)
id in (select 1) | (select max(idx) from t) | exists (select 1 from input j where j.zz = 1) | decode(i, 1, 'a', 'b')
_file | _row_id | name collate utf8_lcase | listagg(name, ',') within group (order by name)
variant_get(parse_json(name), '$.a', 'int') | * except (id, i) | 1.5bd | 3Y | name regexp 'x'
id is not distinct from 1 | flag is true | year(d) year | hour(ts) as hour | - i | +i | max(struct(id, name)).name
(id, i) | not(flag) | name like all ('a%', '%b') | id and_ | orders.amount
"""


@pytest.mark.parametrize("expression", [e.strip() for line in VALID.strip().splitlines() for e in line.split(" | ")])
def test_a_valid_expression_is_no_problem(expression: str) -> None:
    _, problems = after(select(expression))
    assert problems == []


WRONG = [
    ("amout", "no column 'amout'. Did you mean 'amount'?"),
    ("upper(nam)", "no column 'nam'. Did you mean 'name'?"),
    ("id + `my cal`", "no column 'my cal'. Did you mean 'my col'?"),
    ("s.bb", "no field 'bb' in 's'. Did you mean 'b'?"),
    ("S.c.y", "no field 'y' in 'S.c'. Known: x."),
    ("aa.kk", "no field 'kk' in 'aa'."),
    ("transform(arr, x -> x + idd)", "no column 'idd'. Did you mean 'id'?"),
    ("case when flagg then 1 end", "no column 'flagg'. Did you mean 'flag'?"),
    ("sum(idd) over (partition by i)", "no column 'idd'. Did you mean 'id'?"),
    ("* except (idd)", "no column 'idd'. Did you mean 'id'?"),
    ("day = 3", "no column 'day'."),
    ("_metadata.file_path", "no column '_metadata': Helios has its own file readers"),
]


@pytest.mark.parametrize(("expression", "says"), WRONG)
@pytest.mark.parametrize("step", [select, where], ids=["select", "where"])
def test_an_unknown_column_is_named_with_its_near_miss(step: object, expression: str, says: str) -> None:
    assert callable(step)
    problem = only_problem(step(expression))
    assert isinstance(problem, NotFound)
    assert says in problem.what


def test_the_message_shows_the_step() -> None:
    assert only_problem(where("amout > 0")).what == "where(amout > 0): no column 'amout'. Did you mean 'amount'?"
    assert only_problem(with_columns(x="amout")).what.startswith("with_columns(x=amout): no column 'amout'.")


def test_one_problem_per_name_and_expression() -> None:
    _, problems = after(select("nope + nope", "nope", "nah"))
    assert [p.what.partition(": ")[2][:16] for p in problems] == [
        "no column 'nope'",
        "no column 'nope'",
        "no column 'nah'.",
    ]


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("amount > ) 1", "at column 10, near ')'"),
        ("amount >", "at column 8, near '>'"),
        ("name = 'x", "at column 7"),
        ("a\n + * 3 3", "at line 2, column 6, near '3'"),
        ("(", "at column 1"),
    ],
)
def test_what_sqlglot_cannot_parse_is_a_problem_of_its_own_class(expression: str, place: str) -> None:
    problem = only_problem(where(expression))
    assert type(problem) is UnparsedExpression
    assert place in problem.what
    assert " ".join(expression.split()) in problem.what
    assert problem.fix


def test_an_unparsed_expression_leaves_the_columns_that_are_certain() -> None:
    assert after(where("show > 1"))[0] == COLUMNS
    result, _ = after(with_columns(new="show > 1"))
    assert result is not None
    assert result.get("new") == Column("new", "unknown")
    assert after(select("show > 1"))[0] is None


# where, select, with_columns


def test_where_keeps_the_columns() -> None:
    assert after(where("id > 1 AND name IS NOT NULL")) == (COLUMNS, [])


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("id", "bigint"),
        ("name", "string"),
        ("id + 1", "bigint"),
        ("upper(name)", "string"),
        ("1", "int"),
        ("ts", "timestamp"),
    ],
)
def test_a_where_that_is_no_condition(condition: str, kind: str) -> None:
    problem = only_problem(where(condition))
    assert isinstance(problem, DeclarationError)
    assert problem.what == f"where({condition}): this is {kind}, not a condition."
    assert problem.fix == 'write a condition, such as "amount > 0".'


@pytest.mark.parametrize("condition", ["flag", "id > 1", "not flag", "null", "luhn_check(id)", "flag and id in (1, 2)"])
def test_a_where_that_may_be_a_condition(condition: str) -> None:
    assert after(where(condition)) == (COLUMNS, [])


def test_select_names_its_columns_as_spark_does() -> None:
    assert clean(select("ID", "s.c.x", "`my col`", "cast(qty as bigint)", "i + 1 as next", "1 `a b`")) == {
        "ID": "bigint", "x": "double", "my col": "string", "qty": "bigint", "next": "int", "a b": "int",
    }  # fmt: skip


def test_stars() -> None:
    assert after(select("*"))[0] == COLUMNS
    assert list(clean(select("* except (id, AA)"))) == [n for n in COLUMNS.names if n not in ("id", "aa")]
    assert clean(select("s.*", "id")) == {"a": "int", "b": "string", "c": "struct<x:double>", "id": "bigint"}


def test_generators() -> None:
    assert clean(select("id", "explode(arr) as e")) == {"id": "bigint", "e": "int"}
    assert clean(select("explode(m) as (k, v)")) == {"k": "string", "v": "bigint"}
    assert after(select("id", "inline(aa)")) == (None, [])


def test_select_may_use_an_alias_to_its_left() -> None:
    assert clean(select("id + 1 as a", "a * 2 as b")) == {"a": "bigint", "b": "bigint"}
    assert "no column 'b'" in only_problem(select("b * 2 as a", "id as b")).what


def test_a_name_that_only_spark_knows_raises_no_alarm_behind_it() -> None:
    assert after(select("count(*)", "id") >> where("`count(1)` > 3") >> drop("(id + 1)"))[1] == []
    assert after(select("id + 1") >> rename({"(id + 1)": "x"}))[1] == []


def test_nulls() -> None:
    result, _ = after(select("id", "id as x", "count(*) as n", "1 as one", "i", "id + i as y"))
    assert result is not None
    assert [c.name for c in result.columns if not c.nullable] == ["id", "x", "n", "one"]


def test_with_columns_replaces_in_place_and_appends() -> None:
    schema = from_ddl("id bigint, name string")
    assert list(clean(with_columns(ID="name", new="1"), schema).items()) == [
        ("ID", "string"),
        ("name", "string"),
        ("new", "int"),
    ]


def test_with_columns_sees_the_old_value_of_a_column_that_it_replaces() -> None:
    schema = from_ddl("a int, b string")
    assert clean(with_columns(a="b", c="a"), schema) == {"a": "string", "b": "string", "c": "int"}


# rename, drop, cast, dedupe


def test_rename() -> None:
    schema = from_ddl("id bigint, name string")
    assert clean(rename({"ID": "key"}), schema) == {"key": "bigint", "name": "string"}
    assert clean(rename({"id": "Id"}), schema) == {"Id": "bigint", "name": "string"}
    assert clean(rename({"id": "x", "x": "y"}), schema) == {"y": "bigint", "name": "string"}


def test_rename_of_the_unknown_and_onto_the_taken() -> None:
    assert only_problem(rename({"nam": "x"})).what == "rename(nam): no column 'nam'. Did you mean 'name'?"
    problem = only_problem(rename({"i": "ID"}))
    assert isinstance(problem, DeclarationError)
    assert "there is a column 'id' already" in problem.what
    assert "already" in only_problem(rename({"id": "i", "i": "q"})).what


def test_drop() -> None:
    assert list(clean(drop("ID", "name"), from_ddl("id int, name string, x int"))) == ["x"]
    assert only_problem(drop("nmae")).what == "drop(nmae): no column 'nmae'. Did you mean 'name'?"


def test_names_outside_of_expressions_are_literal() -> None:
    assert "no column '`my col`'. Did you mean 'my col'?" in only_problem(drop("`my col`")).what
    assert after(drop("my col"))[1] == []


def test_cast() -> None:
    got = clean(cast(id="string", price="decimal(5)", arr="array<long>", name="varchar(3)"))
    assert (got["id"], got["price"], got["arr"], got["name"]) == ("string", "decimal(5,0)", "array<bigint>", "string")
    assert list(got) == list(COLUMNS.names)


def test_cast_of_an_unknown_column_or_to_an_unknown_type() -> None:
    assert only_problem(cast(idd="int")).what == "cast(idd): no column 'idd'. Did you mean 'id'?"
    problem = only_problem(cast(id="bigit"))
    assert isinstance(problem, DeclarationError)
    assert problem.what == "cast(id=bigit): unknown type 'bigit'. Did you mean 'bigint'?"
    assert "unknown type" in only_problem(cast(id="intt"), None).what


def test_explode() -> None:
    schema, problems = infer(explode("arr", as_="e").steps[0], COLUMNS)
    assert problems == []
    assert schema is not None
    assert schema.names == (*COLUMNS.names, "e")
    assert str(schema.get("e").kind) == "int"  # type: ignore[union-attr]
    schema, problems = infer(explode("aa", as_="AA").steps[0], COLUMNS)
    assert problems == []
    assert schema is not None
    assert str(schema.get("aa").kind) == "struct<k:string,v:int>"  # type: ignore[union-attr]
    assert len(schema.names) == len(COLUMNS.names)


@pytest.mark.parametrize(
    ("column", "made", "says", "fix"),
    [
        ("name", "e", "explode(name): 'name' is string, not an array.", "name an array."),
        (
            "m",
            "e",
            "explode(m): 'm' is map<string,bigint>, not an array.",
            'with_columns({"e": "map_entries(m)"}) first.',
        ),
        ("ar", "e", "explode(ar): no column 'ar'.", "Did you mean 'arr'?"),
        ("arr", "name", "explode(arr): there is a column 'name' already.", 'drop("name")'),
    ],
)
def test_what_cannot_be_exploded(column: str, made: str, says: str, fix: str) -> None:
    _, problems = infer(explode(column, as_=made).steps[0], COLUMNS)
    assert len(problems) == 1
    assert says in str(problems[0])
    assert fix in str(problems[0])


def test_sample_keeps_the_columns() -> None:
    assert infer(sample(0.5, seed=1).steps[0], COLUMNS) == (COLUMNS, [])


def test_dedupe() -> None:
    assert after(dedupe("ID", "my col")) == (COLUMNS, [])
    assert "no column 'idd'" in only_problem(dedupe("id", "idd")).what


# watermark, aggregate, window


def test_watermark() -> None:
    assert after(watermark("TS", "1 hour")) == (COLUMNS, [])
    assert after(watermark("tn", "1 hour")) == (COLUMNS, [])
    assert "no column 'tss'. Did you mean 'ts'?" in only_problem(watermark("tss", "1 hour")).what
    for column, kind in (("d", "date"), ("name", "string"), ("id", "bigint")):
        assert f"{column!r} is {kind}, not a timestamp" in only_problem(watermark(column, "1 hour")).what


def test_a_watermark_in_a_struct() -> None:
    schema = from_ddl("e struct<at:timestamp,n:int>")
    assert after(watermark("e.at", 60), schema) == (schema, [])
    assert "is int, not a timestamp" in only_problem(watermark("e.n", 60), schema).what


def test_aggregate() -> None:
    got = clean(aggregate(["name", "year(d) AS y"], n="count(*)", t="sum(price)", per="t / n", top="max(ts)"))
    assert got == {
        "name": "string", "y": "int", "n": "bigint", "t": "decimal(20,2)", "per": "decimal(38,20)", "top": "timestamp",
    }  # fmt: skip
    assert list(clean(aggregate("cast(id as int)", n="count(*)"))) == ["id", "n"]


def test_aggregate_checks_keys_and_expressions() -> None:
    _, problems = after(aggregate(["nmae"], n="sum(amout)"))
    assert [p.what for p in problems] == [
        "aggregate(nmae): no column 'nmae'. Did you mean 'name'?",
        "aggregate(n=sum(amout)): no column 'amout'. Did you mean 'amount'?",
    ]


def test_window() -> None:
    got = clean(window("ts", "1 hour").group_by("name").agg(n="count(*)"))
    assert list(got.items()) == [
        ("window_start", "timestamp"),
        ("window_end", "timestamp"),
        ("name", "string"),
        ("n", "bigint"),
    ]
    assert clean(window("tn", "1 hour").agg(n="count(*)"))["window_start"] == "timestamp_ntz"
    assert clean(window("d", "1 day").agg(n="count(*)"))["window_end"] == "timestamp"
    assert clean(window("name", "1 day").agg(n="count(*)"))["window_end"] == "timestamp"


def test_window_over_what_is_no_time() -> None:
    assert "'id' is bigint, not a timestamp" in only_problem(window("id", "1 hour").agg(n="count(*)")).what
    assert "no column 'tss'" in only_problem(window("tss", "1 hour").agg(n="count(*)")).what


# join, union


@pytest.mark.parametrize("how", JOIN_KINDS)
def test_join(how: str) -> None:
    left = from_ddl("name string NOT NULL, id bigint NOT NULL")
    step = join(FLOW, on=[] if how == "cross" else "ID", how=how)
    right = from_ddl("zz string NOT NULL") if how == "cross" else OTHER
    result, problems = after(step, left, right)
    assert problems == []
    assert result is not None
    # As Spark 4.1.4 answers for the same two sides.
    assert {
        "inner": "id bigint!, name string!, zz string!, k date",
        "left": "id bigint!, name string!, zz string, k date",
        "right": "id int!, name string, zz string!, k date",
        "full": "id bigint, name string, zz string, k date",
        "semi": "id bigint!, name string!",
        "anti": "id bigint!, name string!",
        "cross": "name string!, id bigint!, zz string!",
    }[how] == ", ".join(f"{c.name} {c.type}{'' if c.nullable else '!'}" for c in result.columns)


def test_join_columns_must_be_on_both_sides() -> None:
    left = from_ddl("key bigint, x int")
    _, problems = after(join(FLOW, on="idd"), left, OTHER)
    assert [p.what for p in problems] == [
        "join(idd): the left side has no column 'idd'. Known: key, x.",
        "join(idd): the right side has no column 'idd'. Did you mean 'id'?",
    ]


def test_a_column_on_both_sides_of_a_join_is_ambiguous() -> None:
    problem = only_problem(join(FLOW, on="id"), from_ddl("id int, ZZ int"), OTHER)
    assert isinstance(problem, DeclarationError)
    assert "both sides have 'zz'" in problem.what
    assert problem.fix is not None
    assert "rename" in problem.fix
    assert after(join(FLOW, on="id", how="semi"), from_ddl("id int, zz int"), OTHER)[1] == []


def test_join_with_one_side_known_at_run() -> None:
    assert after(join(FLOW, on="id"), COLUMNS, None) == (None, [])
    assert after(join(FLOW, on="id"), None, OTHER) == (None, [])
    assert list(clean(join(FLOW, on="i", how="anti"), from_ddl("id int, i int"), None)) == ["i", "id"]
    assert "the right side" in only_problem(join(FLOW, on="idd"), None, OTHER).what


def test_union() -> None:
    left, right = from_ddl("a int NOT NULL, b string"), from_ddl("B string, A bigint")
    assert clean(union(FLOW), left, right) == {"a": "bigint", "b": "string"}
    assert clean(union(FLOW), from_ddl("a int"), from_ddl("a string")) == {"a": "unknown"}
    assert after(union(FLOW), left, None) == (None, [])


def test_a_union_of_different_columns() -> None:
    _, problems = after(union(FLOW), from_ddl("id int, nmae int"), from_ddl("id int, name int"))
    assert [p.what for p in problems] == [
        "union(): only the left side has 'nmae'. Did you mean 'name'?",
        "union(): only the right side has 'name'. Did you mean 'nmae'?",
    ]


# sql: Spark 4.1.4 accepts all of these

QUERIES = [
    ("SELECT id, s.a FROM input", "id bigint, a int"),
    ("SELECT * FROM INPUT i WHERE i.id > 1", None),
    ("select i.*, id + 1 as q from input i", None),
    ("SELECT id AS x, count(*) AS n FROM input GROUP BY x HAVING x > 1 ORDER BY x, n", "x bigint, n bigint"),
    ("FROM input SELECT id", "id bigint"),
    ("FROM input |> WHERE id > 1 |> SELECT id, id + 1 AS z |> WHERE z > 1", "id bigint, z bigint"),
    ("SELECT id x, x + 1 y FROM input", "x bigint, y bigint"),
    ("WITH a AS (SELECT id FROM input), b AS (SELECT id + 1 AS n FROM a) SELECT n FROM b", "n bigint"),
    ("WITH x(q) AS (SELECT id FROM input) SELECT q FROM x", "q unknown"),
    ("SELECT x FROM (SELECT id AS x FROM input)", "x bigint"),
    ("SELECT q.x FROM (SELECT id FROM input) AS q(x)", "x unknown"),
    ("SELECT id FROM input UNION ALL SELECT qty FROM input", "id bigint"),
    ("SELECT id FROM input WHERE EXISTS (SELECT 1 FROM input j WHERE j.id = input.id)", "id bigint"),
    ("SELECT id FROM input WHERE id IN (SELECT max(id) FROM input)", "id bigint"),
    ("SELECT a.id, b.name FROM input a JOIN input b ON a.id = b.id", "id unknown, name unknown"),
    ("SELECT id, k FROM input LATERAL VIEW explode(m) AS k, v", "id unknown, k unknown"),
    ("SELECT id, e FROM input, LATERAL explode(arr) AS t(e)", "id unknown, e unknown"),
    ("SELECT /*+ BROADCAST(i) */ i.id FROM input i", "id bigint"),
    ("SELECT id, row_number() OVER w AS rn FROM input WINDOW w AS (PARTITION BY i ORDER BY id)", "id bigint, rn int"),
    ("SELECT name, sum(i) AS t FROM input GROUP BY CUBE (name)", "name string, t bigint"),
    ("SELECT upper(name) AS u FROM input GROUP BY ALL ORDER BY ALL", "u string"),
    ("SELECT id FROM input GROUP BY id ORDER BY sum(qty)", "id bigint"),
    ("SELECT id FROM input DISTRIBUTE BY i SORT BY name;", "id bigint"),
    ("(SELECT id FROM input)", "id bigint"),
    ("SELECT * FROM input UNPIVOT (v FOR k IN (id, qty))", None),
    ("SELECT * FROM range(10)", None),
    ("VALUES (1, 2)", None),
    ("SELECT 1 AS one", "one int"),
]


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[q for q, _ in QUERIES])
def test_a_valid_query_is_no_problem(query: str, expected: str | None) -> None:
    result, problems = after(sql(query))
    assert problems == []
    if expected is not None:
        assert result is not None
        assert ", ".join(f"{c.name} {c.type}" for c in result.columns) == expected


def test_a_query_of_all_columns() -> None:
    assert after(sql("SELECT * FROM input WHERE id > 1"))[0] == COLUMNS
    assert after(sql("SELECT i.* FROM input i"))[0] == COLUMNS


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT idd FROM input", "no column 'idd'. Did you mean 'id'?"),
        ("SELECT id FROM input WHERE nmae = 'x'", "no column 'nmae'. Did you mean 'name'?"),
        ("SELECT id AS x FROM input WHERE x > 1", "no column 'x'."),
        ("SELECT id FROM input ORDER BY nmae", "no column 'nmae'."),
        ("SELECT input.idd FROM input", "no column 'idd' in 'input'. Did you mean 'id'?"),
        ("WITH q AS (SELECT id FROM input) SELECT name FROM q", "no column 'name'. Known: id."),
        ("SELECT y FROM (SELECT id AS x FROM input)", "no column 'y'. Known: x."),
        ("SELECT id FROM input UNION SELECT nmae FROM input", "no column 'nmae'."),
        ("SELECT id FROM inptu", "reads 'inptu', which does not exist. Did you mean 'input'?"),
        ("SELECT id FROM cat.ns.orders", "reads 'cat.ns.orders'"),
        ("SELECT id FROM input WHERE id IN (SELECT id FROM orders)", "reads 'orders'"),
    ],
)
def test_a_query_that_names_what_is_not_there(query: str, says: str) -> None:
    problem = only_problem(sql(query))
    assert isinstance(problem, NotFound)
    assert says in problem.what


@pytest.mark.parametrize(
    "query", ["SHOW TABLES", "INSERT INTO input SELECT 1", "DROP TABLE x", "SELECT 1; SELECT 2", ";"]
)
def test_what_is_not_one_query_is_refused(query: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        problem = only_problem(sql(query))
    assert type(problem) is DeclarationError
    assert caplog.records == []


def test_a_query_that_sqlglot_cannot_parse() -> None:
    problem = only_problem(sql("SELECT id FRM input WHERE"))
    assert type(problem) is UnparsedExpression


# known at run


@pytest.mark.parametrize(
    "transform",
    [
        where("anything > 1"), rename({"a": "b"}), drop("a"), with_columns(x="a + 1"), cast(a="int"),
        watermark("a", 1), dedupe("a"), select("*", "a"), union(FLOW), sql("SELECT * FROM input"),
    ],
    ids=lambda t: t.text(),
)  # fmt: skip
def test_what_is_known_at_run_stays_so(transform: Transform) -> None:
    assert after(transform, None, OTHER) == (None, [])


def test_steps_that_name_all_columns_tell_them_again() -> None:
    assert clean(select("a", "cast(b as int) as c", "count(*) as n"), None) == {
        "a": "unknown",
        "c": "int",
        "n": "bigint",
    }
    assert clean(aggregate(["k"], n="count(*)"), None) == {"k": "unknown", "n": "bigint"}
    assert clean(sql("SELECT a, 1 AS one FROM input"), None) == {"a": "unknown", "one": "int"}
    assert list(clean(window("t", 60).agg(n="count(*)"), None)) == ["window_start", "window_end", "n"]


# properties


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.text(st.sampled_from("ab.`'\"()[]{}*,:<>=-+/|@$ \n1e%?;"), max_size=30))
def test_no_text_breaks_the_inference(text: str) -> None:
    if not text.strip():
        return
    for transform in (select(text), where(text), sql(text), with_columns(x=text)):
        _, problems = after(transform)
        assert all(isinstance(p, HeliosError) and p.exit_status == 2 for p in problems)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(COLUMNS.names), min_size=1, unique=True), st.data())
def test_selecting_dropping_and_renaming_known_columns_never_alarms(names: list[str], data: st.DataObject) -> None:
    chosen = select(*(f"`{n}`" if " " in n else n.upper() for n in names))
    gone = data.draw(st.sampled_from(names))
    result, problems = after(
        chosen >> rename({gone: "fresh name"}) >> where("`fresh name` IS NULL") >> drop("fresh name")
    )
    assert problems == []
    assert result is not None
    assert [n.lower() for n in result.names] == [n.lower() for n in names if n != gone]


def test_a_deep_expression_does_not_break_it() -> None:
    assert after(with_columns(x=" + ".join(["id"] * 3000)))[1] == []
    _, problems = after(where("(" * 3000 + "id" + ")" * 3000))
    assert all(isinstance(p, UnparsedExpression) for p in problems)


def test_plain_columns_need_no_parser() -> None:
    code = (
        "import sys; from helios.plan.typing.infer import infer; from helios.plan.typing.schema import from_ddl;"
        "from helios import select, with_columns, drop, rename, cast;"
        "t = select('id', '*') >> with_columns(x='id') >> rename({'x': 'y'}) >> drop('y') >> cast(id='string');"
        "schema = from_ddl('id bigint');\n"
        "for step in t.steps: schema, problems = infer(step, schema); assert not problems\n"
        "print([m for m in ('sqlglot', 'pyspark', 'pyiceberg', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# expect


def test_an_expectation_keeps_the_columns() -> None:
    kept, problems = after(expect({"positive": "amount > 0", "named": "name IS NOT NULL AND flag"}, on_fail="drop"))
    assert (kept, problems) == (COLUMNS, [])
    assert after(expect({"flagged": "flag", "ours": "luhn_check(id)", "none": "NULL"}))[1] == []
    assert after(expect({"any": "x > 0"}), None) == (None, [])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("amout > 0", "expect(c=amout > 0): no column 'amout'. Did you mean 'amount'?"),
        ("s.z > 0", "expect(c=s.z > 0): no field 'z' in 's'."),
        ("amount", "expect(c=amount): this is double, not a condition."),
        ("amount + 1", "expect(c=amount + 1): this is double, not a condition."),
        ("amount >", "expect(c=amount >): not understood as Spark SQL"),
    ],
)
def test_an_expectation_that_cannot_be(condition: str, message: str) -> None:
    assert message in str(only_problem(expect({"c": condition})))
