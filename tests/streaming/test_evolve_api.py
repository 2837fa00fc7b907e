"""Schema evolution on real tables: Iceberg makes the planned changes, and PyIceberg reads every value right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from helios import Memory
from helios.catalog.names import TableName
from helios.errors import CheckFailed, InputError, RunError
from helios.model.retry import Retry
from helios.plan.evolution.changes import Change, Drop, Policy
from helios.plan.evolution.evolve import evolve
from helios.plan.evolution.fields import from_pyiceberg, promotions
from helios.plan.typing.types import parse_type
from helios.spark.iceberg import schema as evolving
from helios.spark.iceberg.schema import align, apply_changes, fields_of, null_violation_error, target_of
from helios.spark.iceberg.tables import load_table, spark_schema

pytestmark = pytest.mark.promise("evolve")

FULL = Policy(mode="full")


class Evolved:
    """One table, and a stream's batches that are brought to it."""

    def __init__(self, world: Any, columns: str, name: str = "t", clauses: str = "") -> None:
        self.world = world
        self.spark = world.spark
        self.name = f"a.{name}"
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        world.sql(f"CREATE TABLE local.a.{name} ({columns}) USING iceberg {clauses}")
        self.table = load_table(world.spark, TableName(world.catalog, ("a",), name))

    def batch(self, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
        df: DataFrame = self.spark.createDataFrame(rows, columns)
        return df

    def diff(self, df: DataFrame, policy: Policy) -> Callable[[], Sequence[Change]]:
        def compare() -> Sequence[Change]:
            found = evolve(fields_of(df.schema), target_of(self.table, self.name), policy)
            if found.problems:
                raise CheckFailed(found.problems)
            return found.changes

        return compare

    def evolve(self, df: DataFrame, policy: Policy = FULL) -> list[str]:
        return [str(c) for c in apply_changes(self.spark, self.table, self.diff(df, policy), Retry(backoff=0))]

    def append(self, df: DataFrame) -> None:
        align(df, spark_schema(self.spark, self.table)).writeTo(f"local.{self.name}").append()

    def write(self, df: DataFrame, policy: Policy = FULL) -> list[str]:
        made = self.evolve(df, policy)
        self.append(df)
        return made

    @property
    def iceberg(self) -> Any:
        return self.world.catalog.load(self.name).iceberg

    def rows(self) -> list[dict[str, Any]]:
        """The rows as PyIceberg reads them, by their id."""
        found: list[dict[str, Any]] = self.iceberg.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])


@pytest.mark.short
def test_everything_at_once_is_one_commit_that_keeps_every_value(world: Any) -> None:
    t = Evolved(
        world,
        "id int NOT NULL, old string, gone int, n float, d decimal(9,2), s struct<a: int, b: string>, "
        "l array<struct<x: int>>, m map<string, struct<v: float>>",
    )
    t.append(t.batch("id int, old string, gone int, n float, d decimal(9,2), s struct<a:int,b:string>, "
                     "l array<struct<x:int>>, m map<string,struct<v:float>>",
                     (1, "one", 7, 1.5, Decimal("1.25"), (1, "b"), [(1,), None], {"k": (0.5,)})))  # fmt: skip
    before = t.iceberg
    df = t.batch(
        "ID bigint, new string, n double, d decimal(12,2), s struct<renamed:string,a:bigint,c:date>, "
        "l array<struct<y:string,x:bigint>>, m map<string,struct<w:int,v:double>>, note string",
        (2, "two", 1e300, Decimal("1234567890.50"), ("bb", 2**40, None), [("y", 2**40)], {"k": (1, 1e300)}, "hi"),
        (None, None, None, None, None, None, None, None),
    )
    policy = Policy(mode="full", renames=(("old", "new"), ("s.b", "s.renamed")), drops=("gone",))
    assert t.write(df.where("id IS NOT NULL"), policy) == [
        "RENAME COLUMN old TO new",
        "RENAME COLUMN s.b TO renamed",
        "DROP COLUMN gone",
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN id TYPE bigint",
        "ALTER COLUMN n TYPE double",
        "ALTER COLUMN d TYPE decimal(12,2)",
        "ALTER COLUMN s.a TYPE bigint",
        "ADD COLUMN s.c date",
        "ALTER COLUMN l.element.x TYPE bigint",
        "ADD COLUMN l.element.y string",
        "ALTER COLUMN m.value.v TYPE double",
        "ADD COLUMN m.value.w int",
        "ADD COLUMN note string",
    ]
    assert t.rows() == [
        {
            "id": 1, "new": "one", "n": 1.5, "d": Decimal("1.25"), "s": {"a": 1, "renamed": "b", "c": None},
            "l": [{"x": 1, "y": None}, None], "m": [("k", {"v": 0.5, "w": None})], "note": None,
        },
        {
            "id": 2, "new": "two", "n": 1e300, "d": Decimal("1234567890.50"),
            "s": {"a": 2**40, "renamed": "bb", "c": None}, "l": [{"x": 2**40, "y": "y"}],
            "m": [("k", {"v": 1e300, "w": 1})], "note": "hi",
        },
    ]  # fmt: skip
    after = t.iceberg
    assert [s.schema_id for s in after.metadata.schemas] == [0, 1]
    assert after.schema().find_field("new").field_id == before.schema().find_field("old").field_id
    assert after.schema().find_field("s.renamed").field_id == before.schema().find_field("s.b").field_id


def test_a_second_run_finds_nothing_and_commits_nothing(world: Any) -> None:
    t = Evolved(world, "id int, old string, gone int")
    policy = Policy(mode="full", renames=(("old", "new"),), drops=("gone",))
    df = t.batch("id bigint, new string, c int", (1, "a", 1))
    assert len(t.evolve(df, policy)) == 4
    location = t.iceberg.metadata_location
    assert t.evolve(df, policy) == []
    assert t.iceberg.metadata_location == location


PLANS = [
    ("l array<array<int>>", "l array<array<bigint>>"),
    ("l array<struct<a:int>>", "l array<struct<`b c`:int,a:bigint>>"),
    ("m map<string,map<int,struct<a:float>>>", "m map<string,map<int,struct<a:double,b:array<tinyint>>>>"),
    ("`x.y` int, `Größe` struct<`a.b`:int>", "`x.y` bigint, `größe` struct<`a.b`:bigint,`ü 1`:tinyint>"),
    ("s struct<t:struct<a:int>>", "s struct<t:struct<u:struct<b:int,c:array<struct<d:date>>>>>"),
    ("k map<struct<a:bigint>,int>", "k map<struct<A:int>,bigint>"),
    ("i int", "j timestamp_ntz, k timestamp, b binary, o boolean, d decimal(38,38)"),
]


@pytest.mark.parametrize(("table", "stream"), PLANS)
def test_iceberg_makes_of_a_table_what_the_plan_says(world: Any, table: str, stream: str) -> None:
    t = Evolved(world, f"id int, {table}")
    df = t.batch(f"id int, {stream}")
    planned = evolve(fields_of(df.schema), target_of(t.table, t.name), FULL)
    assert planned.problems == ()
    assert planned.changes != ()
    t.evolve(df)
    assert target_of(t.table, t.name).fields == planned.fields
    assert from_pyiceberg(t.iceberg.schema()) == planned.fields
    t.append(df)


def test_required_fields_become_optional_at_every_level(world: Any) -> None:
    t = Evolved(world, "id int NOT NULL, s struct<a: int NOT NULL, b: int NOT NULL> NOT NULL")
    update = t.table.updateSchema().allowIncompatibleChanges()
    jvm = world.spark._jvm
    integer = jvm.org.apache.iceberg.types.Types.IntegerType.get()
    update.addColumn("l", jvm.org.apache.iceberg.types.Types.ListType.ofRequired(90, integer))
    text = jvm.org.apache.iceberg.types.Types.StringType.get()
    update.addColumn("m", jvm.org.apache.iceberg.types.Types.MapType.ofRequired(91, 92, text, integer))
    update.commit()
    df = t.batch("s struct<a:int>, l array<int>, m map<string,int>, id int", ((None,), [None], {"k": None}, 1))
    assert t.write(df) == [
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN s DROP NOT NULL",
        "ALTER COLUMN s.a DROP NOT NULL",
        "ALTER COLUMN s.b DROP NOT NULL",
        "ALTER COLUMN l.element DROP NOT NULL",
        "ALTER COLUMN m.value DROP NOT NULL",
    ]
    assert t.rows() == [{"id": 1, "s": {"a": None, "b": None}, "l": [None], "m": [("k", None)]}]


def test_the_promotions_are_those_of_this_iceberg(world: Any) -> None:
    names = ("boolean", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(10,2)", "decimal(10,3)", "date")
    names += ("decimal(38,2)", "timestamp", "timestamp_ntz", "string", "binary", "void")
    kinds = [parse_type(name) for name in names]
    jvm = world.spark._jvm
    fields = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    row = jvm.org.apache.spark.sql.types.StructType.fromDDL(fields)
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(row)
    java = [schema.findField(f"c{i}").type() for i in range(len(kinds))]
    for i, old in enumerate(kinds):
        allowed = [
            new
            for j, new in enumerate(kinds)
            if i != j and jvm.org.apache.iceberg.types.TypeUtil.isPromotionAllowed(java[i], java[j])
        ]
        assert [new for new in kinds if new in promotions(old)] == allowed, str(old)


# rows


@pytest.mark.short
def test_rows_are_aligned_at_every_level_and_nulls_stay_nulls(world: Any) -> None:
    t = Evolved(
        world,
        "id bigint, s struct<a: int, b: struct<c: double, d: date>>, l array<struct<x: bigint, y: string>>, "
        "m map<bigint, struct<p: decimal(10,2), q: int>>, ll array<array<double>>, only int",
    )
    df = t.batch(
        "L array<struct<X:int>>, m map<int,struct<P:decimal(4,1)>>, S struct<b:struct<c:float>>, id tinyint, "
        "ll array<array<float>>",
        ([(1,), None, (None,)], {1: (Decimal("1.5"),), 2: None}, ((0.5,),), 1, [[0.5, None], None, []]),
        (None, None, None, 2, None),
        ([], {}, (None,), 3, []),
    )
    assert t.write(df, Policy()) == []
    # Read by Spark: PyIceberg 0.12 shows a null list or map of structs as an empty one.
    rows = [row.asDict(recursive=True) for row in world.sql("SELECT * FROM local.a.t ORDER BY id")]
    nothing = {"s": None, "l": None, "m": None, "ll": None, "only": None}
    assert rows == [
        {
            "id": 1,
            "s": {"a": None, "b": {"c": 0.5, "d": None}},
            "l": [{"x": 1, "y": None}, None, {"x": None, "y": None}],
            "m": {1: {"p": Decimal("1.50"), "q": None}, 2: None},
            "ll": [[0.5, None], None, []],
            "only": None,
        },
        {"id": 2, **nothing},
        {"id": 3, **nothing, "s": {"a": None, "b": None}, "l": [], "m": {}, "ll": []},
    ]


def test_nulls_without_a_type_fit_any_optional_column(world: Any) -> None:
    t = Evolved(world, "id int, a int, s struct<x: int>, l array<struct<y: int>>, m map<string, int>")
    df = world.spark.sql("SELECT 1 AS id, NULL AS a, NULL AS s, array() AS l, map() AS m")
    assert t.write(df, Policy()) == []
    assert t.rows() == [{"id": 1, "a": None, "s": None, "l": [], "m": []}]


def test_what_is_equal_stays_a_bare_reference(world: Any) -> None:
    t = Evolved(world, "id int, s struct<a: int, b: int>, l array<struct<x: int>>, n bigint")
    target = spark_schema(t.spark, t.table)
    same = t.batch("id int, s struct<a:int,b:int>, l array<struct<x:int>>, n bigint")
    assert align(same, target) is same
    moved = align(t.batch("n int, l array<struct<x:int>>, s struct<a:int,b:int>, id int"), target)
    plan = str(moved._jdf.queryExecution().optimizedPlan().toString())
    assert "cast(n#" in plan
    assert "transform" not in plan
    assert "named_struct" not in plan
    assert moved.schema.names == ["id", "s", "l", "n"]


def test_a_batch_that_the_table_cannot_take_is_never_cut_to_size(world: Any) -> None:
    t = Evolved(world, "id int, s struct<a: int>")
    target = spark_schema(t.spark, t.table)
    with pytest.raises(CheckFailed, match=r"lacks columns of the batch: s\.b, c"):
        align(t.batch("id int, s struct<a:int,b:int>, c int"), target)
    with pytest.raises(CheckFailed, match=r"s\.a .* no lossless cast from string"):
        align(t.batch("id int, s struct<a:string>"), target)


@pytest.mark.short
def test_a_null_never_reaches_a_required_column(world: Any) -> None:
    t = Evolved(world, "id int NOT NULL, s struct<a: int NOT NULL>")
    good = t.batch("id int, s struct<a:int>", (1, (1,)), (2, None))
    assert t.write(good, Policy()) == []
    for columns, row in (("id", (None, (1,))), ("s.a", (3, (None,)))):
        bad = t.batch("id int, s struct<a:int>", (4, (1,)), row)
        assert t.evolve(bad, Policy()) == []
        with pytest.raises(PySparkException) as raised:
            t.append(bad)
        told = null_violation_error(raised.value, "local.a.t")
        assert isinstance(told, RunError)
        assert (
            told.what == f"a row has null in {columns}, which local.a.t requires; nothing of its batch was committed."
        )
    assert [row["id"] for row in t.rows()] == [1, 2]
    with pytest.raises(PySparkException) as raised:
        world.sql("SELECT * FROM local.a.nope")
    assert null_violation_error(raised.value, "local.a.t") is None


def test_the_default_of_a_column_is_written_where_the_stream_lacks_it(world: Any) -> None:
    t = Evolved(world, "id int, s struct<a: int>", clauses="TBLPROPERTIES ('format-version' = '3')")
    jvm = world.spark._jvm
    text, literal = jvm.org.apache.iceberg.types.Types.StringType.get(), jvm.org.apache.iceberg.expressions.Literal
    update = t.table.updateSchema().addColumn(None, "c", text, None, literal.of("it's"))
    update.addRequiredColumn("s", "d", text, None, literal.of("x")).commit()
    assert t.write(t.batch("id int, s struct<a:int>", (1, (1,)), (2, None)), Policy()) == []
    assert t.rows() == [{"id": 1, "s": {"a": 1, "d": "x"}, "c": "it's"}, {"id": 2, "s": None, "c": "it's"}]


# the table


def test_the_target_tells_what_relies_on_its_columns(world: Any) -> None:
    t = Evolved(
        world,
        "id int NOT NULL, d date, s struct<k: int NOT NULL> NOT NULL, x int",
        clauses="PARTITIONED BY (days(d), bucket(4, s.k)) TBLPROPERTIES ('format-version' = '1')",
    )
    world.sql("ALTER TABLE local.a.t WRITE ORDERED BY s.k DESC, id")
    world.sql("ALTER TABLE local.a.t SET IDENTIFIER FIELDS id, s.k")
    t.table.refresh()
    target = target_of(t.table, t.name, ["x"])
    assert target.partitioned_by == {"d", "s.k"}
    assert target.sorted_by == {"s.k", "id", "x"}
    assert target.identifiers == {"id", "s.k"}
    assert target.format_version == 1
    world.sql("ALTER TABLE local.a.t DROP PARTITION FIELD days(d)")  # stays in the spec of a v1 table, as void
    t.table.refresh()
    assert target_of(t.table, t.name).partitioned_by == {"s.k"}


def test_a_former_partition_column_can_be_dropped_and_its_rows_stay_readable(world: Any) -> None:
    t = Evolved(world, "id int, d int, e int", clauses="PARTITIONED BY (d)")
    t.append(t.batch("id int, d int, e int", (1, 2, 3), (2, 3, 4)))
    world.sql("ALTER TABLE local.a.t DROP PARTITION FIELD d")
    assert t.write(t.batch("id int, e int", (3, 5)), Policy(mode="full", drops=("d",))) == ["DROP COLUMN d"]
    assert t.rows() == [{"id": 1, "e": 3}, {"id": 2, "e": 4}, {"id": 3, "e": 5}]
    assert t.iceberg.scan(row_filter="e = 4").to_arrow().to_pylist() == [{"id": 2, "e": 4}]
    world.sql("DELETE FROM local.a.t WHERE e = 3")
    world.compact("a.t")
    assert [row["id"] for row in t.rows()] == [2, 3]


def test_identifiers_are_kept_through_a_rename_and_stay_required(world: Any) -> None:
    t = Evolved(world, "id int NOT NULL, k int NOT NULL")
    world.sql("ALTER TABLE local.a.t SET IDENTIFIER FIELDS k")
    df = t.batch("id int, key int", (1, 1))
    assert t.write(df, Policy(mode="full", renames=(("k", "key"),))) == [
        "RENAME COLUMN k TO key",
        "ALTER COLUMN id DROP NOT NULL",
    ]
    schema = t.iceberg.schema()
    assert schema.identifier_field_names() == {"key"}
    assert schema.find_field("key").required


def test_comments_travel_with_new_columns(world: Any) -> None:
    t = Evolved(world, "id int")
    world.sql("CREATE TABLE local.a.s (id int, c int COMMENT 'how many') USING iceberg")
    t.write(world.spark.table("local.a.s"), Policy())
    assert t.iceberg.schema().find_field("c").doc == "how many"


def test_a_type_that_spark_cannot_write_is_told(world: Any) -> None:
    world.catalog.create_namespace("a")
    world.catalog.create_table("a.clock", pa.schema([("id", pa.int64()), ("at", pa.time64("us"))]))
    table = load_table(world.spark, TableName(world.catalog, ("a",), "clock"))
    with pytest.raises(InputError, match=r"local\.a\.clock cannot be written: Spark does not support time fields"):
        target_of(table, "local.a.clock")


# other writers


def test_another_writers_change_is_found_before_the_next_try(world: Any) -> None:
    t = Evolved(world, "id int")
    df = t.batch("id bigint, a int, b int", (1, 2, 3))
    compare, seen = t.diff(df, FULL), list[list[str]]()

    def diff() -> Sequence[Change]:
        changes = compare()
        seen.append([str(c) for c in changes])
        if len(seen) == 1:
            world.sql("ALTER TABLE local.a.t ADD COLUMNS (a int, other string)")
        return changes

    made = apply_changes(world.spark, t.table, diff, Retry(backoff=0))
    assert seen[0] == ["ALTER COLUMN id TYPE bigint", "ADD COLUMN a int", "ADD COLUMN b int"]
    assert [str(c) for c in made] == seen[1] == ["ALTER COLUMN id TYPE bigint", "ADD COLUMN b int"]
    t.append(df)
    assert t.rows() == [{"id": 1, "a": 2, "other": None, "b": 3}]


def test_a_table_that_changes_under_every_try_is_left_alone(world: Any) -> None:
    t = Evolved(world, "id int")
    compare, tries = t.diff(t.batch("id bigint"), FULL), 0

    def diff() -> Sequence[Change]:
        nonlocal tries
        tries += 1
        changes = compare()
        world.sql(f"ALTER TABLE local.a.t SET TBLPROPERTIES ('try' = '{tries}')")
        return changes

    with pytest.raises(RunError, match=r"could not be changed in 3 tries: CommitFailedException"):
        apply_changes(world.spark, t.table, diff, Retry(retries=2, backoff=0))
    assert tries == 3
    assert str(t.iceberg.schema().find_field("id").field_type) == "int"


def test_what_iceberg_refuses_is_told_with_what_was_asked(world: Any) -> None:
    t = Evolved(world, "id int, d date", clauses="PARTITIONED BY (d)")
    with pytest.raises(RunError, match=r"could not be changed \(DROP COLUMN d\): ValidationException: Cannot find"):
        apply_changes(world.spark, t.table, lambda: [Drop(path=("d",))], Retry())
    assert len(t.iceberg.metadata.schemas) == 1


@pytest.mark.short
@pytest.mark.parametrize(("retries", "others", "lands"), [(5, 5, True), (0, 1, False)])
def test_a_pipeline_tries_as_often_as_it_says(
    world: Any, monkeypatch: pytest.MonkeyPatch, retries: int, others: int, lands: bool
) -> None:
    """By default, with three retries, the first one would fail, and the second one land."""
    world.fill("a.t", [0])
    real, tries = evolving.commit_changes, count(1)

    def commit(*arguments: Any) -> None:
        if (tried := next(tries)) <= others:
            world.sql(f"ALTER TABLE local.a.t SET TBLPROPERTIES ('try' = '{tried}')")
        real(*arguments)

    monkeypatch.setattr(evolving, "commit_changes", commit)
    sink = world.sink("a.t").retry(retries=retries, backoff=0.001)
    pipeline = Memory.source([{"id": 1, "more": "a"}]) >> sink
    if lands:
        world.run(pipeline)
    else:
        with pytest.raises(RunError, match=r"could not be changed in 1 try: CommitFailedException"):
            world.run(pipeline)
    assert world.ids("a.t") == ([0, 1] if lands else [0])
