"""What a sink declares is looked at before anything runs: keys, expressions, and calls that do not go together."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helios import (
    Files,
    Iceberg,
    Memory,
    bucket,
    day,
    dedupe,
    drop,
    expect,
    identity,
    join,
    select,
    sql,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
    year,
)
from helios.model.sink import IcebergSink
from helios.plan import Context, compile_pipelines
from helios.plan.checks.sinks import left_out, sort_terms, stored_columns
from helios.plan.typing.schema import from_ddl

pytestmark = pytest.mark.promise("words")

ORDERS = Iceberg.source("a.orders")
FOLLOWED = ORDERS.incremental()
SINK = Iceberg.sink("a.t")
ROWS = Memory.source([], "id bigint, name string, ts timestamp, m map<string,int>, s struct<a:int>, f double, d date")
OLD = Iceberg.sink("a.orders")
BY_ID = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN DELETE"


LOOP = "a.orders is both followed and appended to: each batch would be read again, without an end"


@pytest.mark.parametrize(
    "pipeline",
    [
        FOLLOWED >> OLD,
        FOLLOWED >> with_columns(name="upper(name)") >> expect({"some": "id > 0"}) >> OLD.exactly_once(),
        FOLLOWED >> watermark("ts", "1h") >> select("id", "name", "ts") >> OLD,
        FOLLOWED >> join(ROWS >> select("id", "d"), on="id", how="left") >> drop("d") >> OLD,
        Iceberg.source("a.more").incremental() >> union(FOLLOWED >> select("id", "name", "ts")) >> OLD,
        ORDERS.changes("id").incremental() >> select("id", "name", "ts") >> OLD,
    ],
    ids=lambda pipeline: pipeline.text(),
)
def test_a_table_that_is_appended_to_what_is_read_of_it(problems: Any, pipeline: Any) -> None:
    [problem] = [problem for problem in problems(pipeline) if "without an end" in problem]
    assert re.match(rf".*test_sinks\.py:\d+: .*{re.escape(LOOP)}.* Fix: .*where\(", problem), problem


@pytest.mark.parametrize(
    "pipeline",
    [
        ORDERS >> OLD,
        ROWS >> SINK.partition_by("s.a"),
        FOLLOWED >> SINK,
        FOLLOWED >> OLD.branch("stage"),
        FOLLOWED >> where("name = 'raw'") >> with_columns(name="'done'") >> OLD,
        FOLLOWED.where("name = 'raw'") >> with_columns(name="'done'") >> OLD,
        FOLLOWED >> expect({"raw": "name = 'raw'"}, on_fail="drop") >> OLD,
        FOLLOWED >> watermark("ts", "1h") >> dedupe("id", within="1h") >> OLD,
        FOLLOWED >> sql("SELECT * FROM input WHERE id < 10") >> OLD,
        FOLLOWED >> join(ROWS >> select("id"), on="id") >> OLD,
        FOLLOWED >> select("explode(array(id)) AS id", "name", "ts") >> OLD,
        FOLLOWED >> step(lambda df: df.limit(1)) >> OLD,
        ROWS >> select("id") >> join(FOLLOWED, on="id", how="left") >> OLD,
    ],
    ids=lambda pipeline: pipeline.text(),
)
def test_rows_that_may_come_to_an_end(problems: Any, pipeline: Any) -> None:
    assert [problem for problem in problems(pipeline) if "without an end" in problem] == []


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        # keys
        (ORDERS >> SINK.upsert("idd"), "upsert(idd): no column 'idd' in the stream. Did you mean 'id'?"),
        (ORDERS >> OLD.delete("nam"), "delete(nam): no column 'nam' in the stream. Did you mean 'name'?"),
        (ROWS >> SINK.upsert("m"), "upsert(m): 'm' is map<string,int>, which cannot be a key."),
        (ROWS >> SINK.upsert("id", "s"), "upsert(s): 's' is struct<a:int>, which cannot be a key."),
        (
            ROWS >> select("id", "name", "ts") >> with_columns(k="array(id)") >> SINK.upsert("k"),
            "upsert(k): 'k' is array<bigint>, which cannot be a key.",
        ),
        # the order and the deletes
        (ORDERS >> SINK.upsert("id", order_by="tss"), "order_by(tss): no column 'tss'. Did you mean 'ts'?"),
        (ORDERS >> SINK.upsert("id", order_by="ts desc"), "order_by(ts desc): write the expression without asc or "),
        (ROWS >> SINK.upsert("id", order_by="m"), "order_by(m): map<string,int> has no order."),
        (ORDERS >> SINK.upsert("id", order_by="ts, id"), "order_by(ts, id): not understood as Spark SQL"),
        (ORDERS >> SINK.upsert("id", order_by="ts +"), "order_by(ts +): not understood as Spark SQL"),
        (ORDERS >> SINK.upsert("id", delete_when="op = 'd'"), "delete_when(op = 'd'): no column 'op'."),
        (ORDERS >> SINK.upsert("id", delete_when="name"), "delete_when(name): this is string, not a condition."),
        (
            ROWS >> with_columns(valid_to="ts") >> SINK.upsert("id", order_by="ts", history=True),
            "upsert(history=True) adds valid_from and valid_to, and the stream carries valid_to already.",
        ),
        # what replaces
        (FOLLOWED >> SINK.overwrite(), "overwrite() of the whole table from a followed source"),
        (ORDERS >> SINK.overwrite("dd = 1"), "overwrite(dd = 1): no column 'dd'."),
        (ORDERS >> SINK.overwrite("id + 1"), "overwrite(id + 1): this is bigint, not a condition."),
        (ORDERS >> SINK.overwrite("id = ("), "overwrite(id = (): not understood as Spark SQL"),
        (
            ORDERS >> with_columns(x="1D") >> SINK.overwrite("id = 1 AND x > 0"),
            "overwrite(id = 1 AND x > 0): x is a double, and Iceberg uses column bounds to find the rows",
        ),
        (
            ORDERS >> with_columns(s="named_struct('x', 1F)") >> SINK.overwrite("s.x < 5"),
            "overwrite(s.x < 5): s.x is a float, and Iceberg uses column bounds to find the rows to replace",
        ),
        (ORDERS >> SINK.overwrite_partitions(), "overwrite_partitions(): local.a.t is unpartitioned"),
        # tables that are not there
        (ORDERS >> SINK.delete("id"), "table a.t does not exist in catalog 'local'. "),
        (ORDERS >> SINK.delete("id"), "delete() changes rows, and creates no table."),
        (ORDERS >> SINK.merge_sql(BY_ID), "merge_sql() changes rows, and creates no table."),
        (ORDERS >> Iceberg.sink("a.order").create(False), "Did you mean 'a.orders'?"),
        (ORDERS >> OLD.merge_sql(BY_ID.replace("batch.id", "batch.idd")), "no column 'idd' in 'batch'."),
        (ORDERS >> OLD.merge_sql(BY_ID.replace("target.id", "target.idd")), "no column 'idd' in 'target'."),
        # audits
        (ORDERS >> SINK.audit({"a": "count(*) > 0"}), "audit() without publish()"),
        (ORDERS >> SINK.publish(), "publish() without audit()"),
        (ORDERS >> SINK.audit({"a": "count(*) > 0"}).publish().branch("x"), "audit() and branch(): "),
        (ORDERS >> SINK.audit({"a": "count(*) > 0"}).publish().route(by="name"), "audit() and route(): "),
        (ORDERS >> SINK.audit({"a": "max(idd) > 0"}).publish(), "audit(a=max(idd) > 0): no column 'idd'."),
        (ORDERS >> SINK.audit({"a": "count(*)"}).publish(), "audit(a=count(*)): this is bigint, not a condition."),
        (ORDERS >> SINK.audit({"a": "id > 0"}).publish(), "audit(a=id > 0): 'id' is outside of any aggregate"),
        (
            ORDERS >> SINK.audit({"a": "id > max(id)"}).publish(),
            "audit(a=id > max(id)): 'id' is outside of any aggregate",
        ),
        (ORDERS >> SINK.audit({"a": "count(* > 0"}).publish(), "audit(a=count(* > 0): not understood"),
        # routes
        (ORDERS >> SINK.route(by="nam"), "route(nam): no column 'nam'. Did you mean 'name'?"),
        (ORDERS >> SINK.route(by="date(ts)"), "route(date(ts)): date cannot name a table"),
        (ROWS >> SINK.route(by="f"), "route(f): double cannot name a table"),
        (ROWS >> SINK.route(by="s"), "route(s): struct<a:int> cannot name a table"),
        (ORDERS >> SINK.merge_sql(BY_ID).route(by="name"), "route() and merge_sql(): "),
        # partitions
        (ORDERS >> SINK.partition_by(year("ts"), day("ts")), "partition_by(year(ts), day(ts)): Iceberg takes one time"),
        (ORDERS >> SINK.partition_by("name", "NAME"), "partition_by(name, NAME): Iceberg takes one identity"),
        (
            ORDERS >> with_columns(ts_day="date(ts)") >> SINK.partition_by(day("ts")),
            "partition_by(day(ts)): its partition would be called ts_day, as a column is",
        ),
        # order, properties and codecs
        (ORDERS >> SINK.sort_by("tss desc"), "sort_by(tss desc): no column 'tss'. Did you mean 'ts'?"),
        (ORDERS >> SINK.sort_by("lower(name)"), "sort_by(lower(name)): 'lower(name)' is not a column"),
        (ROWS >> SINK.sort_by("m"), "sort_by(m): map<string,int> has no order in Iceberg."),
        (ORDERS >> SINK.compression("brotli"), "compression('brotli'): Spark's jars have no such codec for parquet."),
        (ORDERS >> SINK.compression("zstd", 40), "compression('zstd', 40): zstd in parquet takes levels 1 to 22."),
        (ORDERS >> SINK.compression("snappy", 1), "compression('snappy', 1): snappy in parquet has no levels."),
        (
            ORDERS >> SINK.table_properties({"write.format.default": "avro"}).compression("lz4"),
            "compression('lz4'): Spark's jars have no such codec for avro.",
        ),
        (
            ORDERS >> SINK.table_properties({"write.format.default": "parqet"}),
            "'parqet' is not a format of data files. Did you mean 'parquet'?",
        ),
        (ORDERS >> SINK.format_version(2).table_properties({"format-version": "3"}), "give different versions"),
        (ORDERS >> SINK.table_properties({"format-version": "1"}), "new tables are of format-version 2 or 3"),
        # evolution
        (ORDERS >> SINK.renames({"a": "b"}), "renames() and drops() need full schema evolution."),
        (ORDERS >> SINK.evolve_schema("strict").drops("a"), "need full schema evolution."),
        (ORDERS >> OLD.delete("id").evolve_schema("full").drops("a"), "need a mode that stores the stream's columns"),
        # quarantine
        (ORDERS >> expect({"p": "idd > 0"}) >> SINK, "expect(p=idd > 0): no column 'idd'. Did you mean 'id'?"),
        (ORDERS >> expect({"p": "id"}) >> SINK, "expect(p=id): this is bigint, not a condition."),
        (ORDERS >> expect({"p": "id >"}) >> SINK, "expect(p=id >): not understood as Spark SQL"),
        (
            ORDERS >> expect({"p": "id > 0"}, on_fail="quarantine") >> SINK,
            "Iceberg.sink(a.t) has no quarantine for rejected rows. Fix: add .quarantine(",
        ),
        (
            FOLLOWED
            >> expect({"p": "id > 0"}, on_fail="quarantine")
            >> watermark("ts", "1h")
            >> window("ts", "1h").agg(n="count(*)")
            >> SINK.quarantine("a.q"),
            'from which no rows can be quarantined. Fix: write on_fail="drop", or split the pipeline',
        ),
        (ORDERS >> SINK.quarantine("a.t"), "quarantine(a.t): this is the target itself, local.a.t."),
        (ORDERS >> SINK.quarantine("nope.a.q"), "catalog 'nope' is not declared"),
        # bounds and demands
        (
            Files.source("x", "csv", schema="id bigint").incremental() >> SINK.flush(rows=10),
            "flush(rows=) cannot bound Files.source(x, csv)",
        ),
        (
            ORDERS >> SINK.upsert("id", order_by="uuid()").exactly_once(),
            "uuid() gives other values when a batch is run again",
        ),
        (ORDERS >> SINK.route(by="concat('r', rand())").exactly_once(), "rand() gives other values"),
        (ORDERS >> with_columns(at="now()") >> SINK.exactly_once(), "now() gives other values"),
        (ORDERS >> with_columns(at="CURRENT_TIMESTAMP") >> SINK.exactly_once(), "current_timestamp() gives other"),
        (ORDERS >> where("ts < current_date - 1") >> SINK.exactly_once(), "current_date() gives other values"),
        (ORDERS >> with_columns(x="unix_timestamp( )") >> SINK.exactly_once(), "unix_timestamp() gives other"),
        (ORDERS >> with_columns(x="randstr(4)") >> SINK.exactly_once(), "randstr() gives other values"),
        (ORDERS >> with_columns(x="uniform(1, 2)") >> SINK.exactly_once(), "uniform() gives other values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(problems: Any, pipeline: Any, message: str) -> None:
    told = problems(pipeline)
    assert any(message in problem for problem in told), told
    assert all(re.match(r"\S*test_sinks\.py:\d+: ", problem) for problem in told)
    assert len(told) == 1, told


@pytest.mark.parametrize(
    "pipeline",
    [
        ORDERS >> SINK.overwrite(),
        ORDERS >> SINK.overwrite("ts >= DATE '2026-01-01'"),
        FOLLOWED >> SINK.overwrite("id = 1"),
        FOLLOWED >> SINK.overwrite_partitions().partition_by("name"),
        FOLLOWED >> OLD.overwrite_partitions(),
        ORDERS >> SINK.upsert("id", order_by="struct(ts, id)", delete_when="name = 'd' OR ts IS NULL"),
        ORDERS >> SINK.upsert("ID", order_by="luhn_check(ts)", delete_when="luhn_check(name)"),
        ORDERS >> SINK.upsert("id", tombstones="1d"),
        ROWS >> SINK.upsert("f"),
        ORDERS >> SINK.upsert("id", order_by="ts", history=True).partition_by(bucket(4, "id"), "valid_from"),
        ORDERS >> OLD.delete("name", "id"),
        ORDERS >> with_columns(extra="1") >> OLD.delete("id"),
        ORDERS >> select("id") >> OLD.merge_sql(BY_ID),
        ORDERS >> SINK.audit({"a": "count(*) = count(DISTINCT id)", "b": "every(id > 0)", "c": "hypot(id)"}).publish(),
        ORDERS >> SINK.audit({"a": "count_if(id < 0) = 0 AND max(ts) < now() AND corr(id, id) > 0"}).publish(),
        ORDERS >> SINK.audit({"a": "percentile_cont(0.5) WITHIN GROUP (ORDER BY id) > 0"}).publish(),
        ORDERS >> SINK.audit({"a": "sum(id) FILTER (WHERE name = 'x') < 5"}).publish(),
        ORDERS >> SINK.branch("b").upsert("id").write_mode("copy-on-write").distribution("range"),
        ORDERS >> SINK.route(by="lower(name)").upsert("id"),
        ORDERS >> SINK.route(by="year(ts)").overwrite(),
        ORDERS >> SINK.route(by="id % 4").branch("b").quarantine("a.q"),
        ORDERS >> SINK.sort_by("`name` desc nulls first", "TS").compression("gzip", 9),
        ROWS >> SINK.sort_by("s.a"),
        ORDERS >> expect({"p": "id > 0", "q": "name <> ''"}, on_fail="quarantine") >> SINK.quarantine("a.q"),
        FOLLOWED >> expect({"p": "id > 0"}) >> watermark("ts", "1h") >> SINK,
        ORDERS >> step(lambda df: df) >> expect({"p": "x > 0"}) >> SINK.upsert("k", order_by="z").sort_by("y"),
        ORDERS >> SINK.format_version(3).table_properties({"format-version": "3"}),
    ],
    ids=lambda pipeline: f"{pipeline.text()} {pipeline.sink.mode.text()}",
)
def test_what_goes(planned: Any, pipeline: Any) -> None:
    assert planned(pipeline).write.sink is pipeline.sink


def test_sinks_are_looked_at_offline_too(context: Context) -> None:
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    rows = Memory.source([{"id": 1}])
    wrong = [
        rows >> SINK.upsert("di"),
        rows >> Iceberg.sink("a.u").publish(),
        rows >> Iceberg.sink("a.v").route(by="x"),
        rows >> Iceberg.sink("a.w").sort_by("id +"),
    ]
    _, problems = compile_pipelines(wrong, offline)
    assert len(problems) == 4
    unknown = [
        rows >> Iceberg.sink("a.u").delete("id"),
        rows >> Iceberg.sink("a.v").overwrite("elsewhere = 1"),
        rows >> Iceberg.sink("a.w").overwrite_partitions(),
        rows >> Iceberg.sink("a.x").sort_by("elsewhere"),
    ]
    assert compile_pipelines(unknown, offline)[1] == []


COLUMNS = from_ddl("id bigint, op string, ts timestamp, s struct<at:timestamp>, n int, day date")


@pytest.mark.parametrize(
    ("sink", "table", "out"),
    [
        (SINK.upsert("id", order_by="ts", delete_when="op = 'd'"), None, ("op",)),
        (SINK.upsert("id", order_by="ts", delete_when="ts < now()"), None, ()),
        (SINK.upsert("id", order_by="ts", delete_when="op = 'd'", store_order=False), None, ("op", "ts")),
        (SINK.upsert("id", order_by="TS", store_order=False), None, ("ts",)),
        (SINK.upsert("id", order_by="struct(ts, n)"), None, ()),
        (SINK.upsert("id", order_by="struct(ts, id)", store_order=False), None, ("ts",)),
        (SINK.upsert("id", order_by="ts"), "id bigint", ()),
        (SINK.upsert("id", order_by="ts", store_order=False), "id bigint, ts timestamp", ()),
        (SINK.upsert("id", "ts", order_by="ts"), None, ()),
        (SINK.upsert("id", order_by="ts").partition_by(bucket(4, "id"), identity("ts")), None, ()),
        (SINK.upsert("id", order_by="ts").sort_by("ts desc"), None, ()),
        (SINK.upsert("id", order_by="s.at"), None, ()),
        (SINK.upsert("id", order_by="ts", delete_when="op = 'd'"), "id bigint, ts timestamp", ("op",)),
        (SINK.upsert("id", order_by="ts", history=True), None, ()),
        (SINK.upsert("id", order_by="ts", history=True, store_order=False), None, ("ts",)),
        (SINK.upsert("id", order_by="ts", history=True), "id bigint, ts timestamp", ()),
        (SINK.upsert("id", order_by="ts +"), None, ()),
        (SINK.upsert("id"), None, ()),
        (SINK, None, ()),
        (SINK.delete("id"), None, ()),
    ],
)
def test_columns_that_are_left_out(sink: IcebergSink, table: str | None, out: tuple[str, ...]) -> None:
    assert left_out(sink, COLUMNS, from_ddl(table) if table else None) == out


def test_history_stores_the_bounds_of_versions() -> None:
    sink = SINK.upsert("id", order_by="ts", delete_when="op = 'd'", history=True)
    kept = stored_columns(sink, COLUMNS, left_out(sink, COLUMNS, None))
    assert [(c.name, c.type) for c in kept.columns[-3:]] == [
        ("day", "date"),
        ("valid_from", "timestamp"),
        ("valid_to", "timestamp"),
    ]
    assert "op" not in kept.names
    unknown = stored_columns(SINK.upsert("id", order_by="f(ts)", history=True), COLUMNS, ())
    assert unknown.columns[-1].type == "unknown"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ts", "ts asc"),
        ("ts DESC", "ts desc"),
        ("`my col` asc nulls last", "my col asc nulls last"),
        ("s.at desc NULLS FIRST", "s.at desc nulls first"),
        ("desc", "desc asc"),
    ],
)
def test_parts_of_an_order(text: str, shown: str) -> None:
    assert str(sort_terms(SINK.sort_by(text))[0]) == shown
