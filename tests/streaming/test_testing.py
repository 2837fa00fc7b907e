"""`helios.testing`: what goes in by source, what comes out by mode, and the faults that `invariant` catches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from helios import (
    Catalog,
    Cdc,
    Files,
    Iceberg,
    Kafka,
    Memory,
    Pipeline,
    Webhook,
    aggregate,
    dedupe,
    expect,
    join,
    select,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.errors import HeliosError, InputError
from helios.testing import Different, Lake, Record, assert_plan, schema
from tests.suite.pages import blocks

pytestmark = pytest.mark.promise("testing")

ORDERS = Iceberg.source("shop.orders").incremental()
COLUMNS = "id bigint, customer string, amount double, ts timestamp"
ROWS = [{"id": n, "customer": "ab"[n % 2], "amount": n + 0.5, "ts": f"2026-01-01T0{n}:00Z"} for n in range(4)]


@pytest.fixture
def lake(shared_spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as made:
        yield made


def sink(name: str = "shop.t") -> Any:
    return Iceberg.sink(name)


@pytest.mark.short
def test_rows_go_in_and_the_target_is_compared(lake: Lake) -> None:
    test = lake.test(ORDERS >> where("amount > 1") >> sink())
    test.batch(orders=[{"id": 1, "amount": 2.5}, {"id": 1, "amount": 2.5}, {"id": 2, "amount": 0.5}])
    test.expect([{"id": 1, "amount": "2.5"}, {"id": "1", "amount": 2.5}])  # partial, cast, and each as often as it is
    with pytest.raises(Different, match=r"id=1 \(2 times, expected 1\)"):
        test.expect([{"id": 1}])
    test.batch(orders=[{"id": 3, "amount": 7}])
    with pytest.raises(Different, match=r"id=3: amount is 7\.0, expected 8\.0"):
        test.expect([{"id": 1, "amount": 2.5}, {"id": 1, "amount": 2.5}, {"id": 3, "amount": 8}])
    assert test.schema() == {"id": "bigint", "amount": "double"}


@pytest.mark.short
@pytest.mark.parametrize("moment", ["after_rejects", "before_commit", "after_commit"])
def test_a_killed_batch_is_there_once(lake: Lake, moment: Any) -> None:
    test = lake.test(
        ORDERS >> expect({"positive": "amount > 0"}, on_fail="quarantine") >> sink().quarantine("shop.bad")
    )
    test.batch(orders=[{"id": 1, "amount": 2.5}, {"id": 2, "amount": -1.0}], kill=moment)
    test.expect([{"id": 1}]).expect_rejected(count=1, reason="positive")
    test.replay().expect([{"id": 1}]).expect_rejected(['"id":2'])
    with pytest.raises(Different, match="1 rows were rejected, expected 2"):
        test.expect_rejected(count=2)
    with pytest.raises(InputError, match="no batch reached the moment"):
        test.batch(orders=[], kill=moment).settle()


def test_names_and_types_that_do_not_fit_are_told_with_the_near_miss(lake: Lake) -> None:
    test = lake.test(ORDERS >> sink())
    lake.table("shop.orders", COLUMNS)
    for rows, said in (
        ({"ordres": []}, "'ordres' is not a source of the pipeline. Did you mean 'orders'"),
        ({"orders": [{"idd": 1}]}, "row 1 has no column 'idd'. Did you mean 'id'"),
        ({"orders": [{"id": 1}, {"id": "x"}]}, r"row 2, column 'id' \(bigint\): 'x' is not a whole number"),
    ):
        with pytest.raises(InputError, match=said):
            test.batch(rows)
    test.batch(orders=ROWS)
    with pytest.raises(InputError, match=r"no column 'amont'. Did you mean 'amount'"):
        test.expect([{"amont": 1}])


def test_an_error_is_asked_for_or_raised(lake: Lake) -> None:
    lake.table("shop.orders", "id bigint, amount double")
    test = lake.test(ORDERS >> where("amont > 0") >> sink())
    test.expect_error("column 'amont'")  # of `check`, before any row
    test.batch(orders=[{"id": 1, "amount": 2.5}])
    test.expect_error("column 'amont'")
    with pytest.raises(Different, match="there was no error"):
        test.expect_error("amont")
    test.batch(orders=[{"id": 1, "amount": 2.5}])
    with pytest.raises(HeliosError, match="amont"):
        test.expect([])


def test_pipelines_feed_each_other(lake: Lake) -> None:
    good = ORDERS >> where("amount > 0") >> sink("shop.good")
    totals = (
        Iceberg.source("shop.good").incremental()
        >> aggregate("customer", total="sum(amount)")
        >> sink("shop.totals").upsert("customer")
    )
    test = lake.test([good, totals])
    test.batch(orders=[{"customer": "ann", "amount": 1.5}, {"customer": "ann", "amount": -1.0}])
    test.batch(orders=[{"customer": "ann", "amount": 2.0}], kill="before_commit")
    test.expect([{"customer": "ann", "total": 3.5}]).expect([{"amount": 1.5}, {"amount": 2}], table="good")
    assert list(test.stage.feeds) == ["local.shop.orders"]


def test_nothing_of_a_real_lake_is_touched(lake: Lake) -> None:
    prod = Catalog.rest("prod", uri="https://nowhere.invalid")
    real = Iceberg.source("shop.orders", catalog=prod).incremental(start=7, max_rows=1) >> Iceberg.sink(
        "shop.t", catalog=prod
    ).checkpoint("/nowhere/at/all")
    test = lake.test(real)
    test.batch(orders=ROWS).expect(ROWS)
    assert test.stage.plans()[0].pipeline == "prod.shop.t"
    assert test.log.events[-1].kind == "finished"


def test_what_cannot_be_replaced_is_refused(lake: Lake) -> None:
    avro = Kafka.source("orders").servers("b:9092").value("avro", registry="https://registry:8081").incremental()
    with pytest.raises(InputError, match="takes its columns from a schema registry"):
        lake.test(avro >> sink())


# sources


@pytest.mark.jars("kafka", "avro")
def test_values_of_a_registry(lake: Lake) -> None:
    """Dicts are values in the registry's format, and no server is asked."""
    kinds = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    kinds["fields"] += [{"name": "note", "type": ["null", "string"], "default": None}]
    formats = (("json", "id bigint, note string"), ("avro", kinds))
    for number, (format, columns) in enumerate(formats):
        source = (
            Kafka.source(f"t{number}").servers("b:9092").value(format, schema=columns, registry="https://registry:8081")
        )
        test = lake.test(source.incremental() >> Iceberg.sink(f"shop.t{number}"))
        test.batch([{"id": 1, "note": "é"}, {"id": 2}])
        test.batch([b"\0\0\0\0\x07" + (b'{"id": 3}' if format == "json" else b"\x06\0")])
        test.expect([{"id": 1, "note": "é"}, {"id": 2, "note": None}, {"id": 3, "note": None}])


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "orc"])
def test_files(lake: Lake, format: Any) -> None:
    source = Files.source("/real/orders", format, schema="id bigint, amount decimal(10,2), ts timestamp")
    test = lake.test(source.incremental() >> sink())
    test.batch(orders=[{"id": 1, "amount": "2.50", "ts": "2026-01-01T09:00Z"}, {"id": 2, "amount": None}])
    test.batch([{"id": 3, "amount": 1}], kill="after_commit")
    test.expect([{"id": 1, "amount": 2.5}, {"id": 2, "amount": None}, {"id": 3, "amount": 1}]).replay()


def test_columns_of_partition_folders_are_columns_of_rows(lake: Lake) -> None:
    source = Files.source("/real/orders/day=*", "parquet", schema="id bigint, day date")
    test = lake.test(source.incremental() >> sink().partition_by("day"))
    test.batch(orders=[{"id": 1, "day": "2026-01-01"}]).batch([{"id": 2, "day": "2026-01-02"}], kill="before_commit")
    test.expect([{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "2026-01-02"}])


def test_the_text_of_files_is_judged_by_the_source(lake: Lake) -> None:
    source = Files.source("/real/orders/*.csv", schema="id bigint, name string").on_bad_row("quarantine")
    test = lake.test(source.incremental() >> sink().quarantine("shop.bad"))
    test.batch(orders="id,name\n1,ann\nx,bob\n", kill="after_rejects")
    test.expect([{"id": 1, "name": "ann"}]).expect_rejected(["x,bob"], reason="id does not fit bigint")


def test_deliveries_of_a_webhook(lake: Lake) -> None:
    source = Webhook.source("/orders", secret="x" * 32, schema="id bigint, name string")
    test = lake.test(source >> sink())
    test.batch(orders=[{"id": 1, "name": "ann"}, b'{"id": 2}'], kill="before_commit").batch([{"id": 3}])
    test.expect([{"id": 1, "name": "ann"}, {"id": 2, "name": None}, {"id": 3, "name": None}])
    with pytest.raises(InputError, match=r"the receiver refuses .*: id is not of type bigint"):
        test.batch([{"id": "x"}])


def test_rows_of_memory(lake: Lake) -> None:
    test = lake.test(Memory.source([{"id": 1}], schema="id bigint") >> sink())
    test.batch([{"id": 5}]).batch([{"id": 5}], kill="after_commit").batch([{"id": 6}])
    test.expect([{"id": 5}, {"id": 5}, {"id": 6}])
    out = lake.test(ORDERS >> Memory.sink("out"))
    out.batch(orders=ROWS).expect([{"id": row["id"]} for row in ROWS])


def test_records_of_a_topic_are_judged_by_the_source(lake: Lake) -> None:
    topic = Kafka.source("orders").servers("b:9092").value("json", schema="id bigint, name string")
    source = topic.on_bad_row("quarantine").metadata("key", "partition", "offset", "headers").incremental()
    test = lake.test(source >> sink().quarantine("shop.bad"))
    second = Record(value={"id": 2, "name": "bob"}, key="k", partition=1, headers=(("h", b"1"),))
    test.batch(orders=[{"id": 1, "name": "ann"}, b"{broken", second], kill="before_commit")
    test.expect([{"id": 1, "partition": 0, "key": None}, {"id": 2, "partition": 1, "key": b"k"}])
    test.expect_rejected(["{broken"])
    test.batch([{"id": "x"}]).expect_rejected(count=2).expect_rejected(count=1, reason="id does not fit bigint")
    test.replay()


@pytest.mark.parametrize("declared", [None, "id bigint, name string"])
def test_changes_of_a_database(lake: Lake, declared: str | None) -> None:
    topic = Kafka.source("shop.public.orders").servers("b:9092")
    test = lake.test(Cdc.debezium(topic, schema=declared).incremental() >> sink().upsert("id"))
    ann, bob = {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}
    test.batch(orders=[("c", None, ann), ("c", None, bob)])
    test.batch([("u", ann, {"id": 1, "name": "eve"}), ("d", bob, None)], kill="after_commit")
    test.expect([{"id": 1, "name": "eve"}]).replay()


def test_a_change_log(lake: Lake) -> None:
    topic = Kafka.source("orders").servers("b:9092").value("json", schema="op string, id bigint, name string")
    test = lake.test(Cdc.json(topic).incremental() >> sink().upsert("id"))
    test.batch([{"op": "c", "id": 1, "name": "ann"}, {"op": "c", "id": 2, "name": "bob"}], kill="after_commit")
    test.batch([{"op": "u", "id": 1, "name": "eve"}, {"op": "d", "id": 2}]).expect([{"id": 1, "name": "eve"}])


@pytest.mark.parametrize("read", ["at_ref", "at_snapshot", "as_of"])
def test_a_state_of_a_table_is_the_rows_of_the_test(lake: Lake, read: str) -> None:
    states: dict[str, Any] = {"at_ref": "v1", "at_snapshot": 7, "as_of": "2026-01-01"}
    source = getattr(Iceberg.source("shop.orders"), read)(states[read])
    test = lake.test(source >> select("id", "amount") >> sink().overwrite("true"))
    test.batch(orders=ROWS[:1]).batch(orders=ROWS[1:2], kill="before_commit")
    test.expect([{"id": 0, "amount": 0.5}, {"id": 1, "amount": 1.5}])


@pytest.mark.parametrize("read", ["between", "changes_between"])
def test_a_range_of_history_is_what_the_test_has_given_last(lake: Lake, read: str) -> None:
    test = lake.test(getattr(Iceberg.source("shop.orders"), read)(1, 2) >> select("id", "amount") >> sink())
    lake.table("shop.orders", COLUMNS, [{"id": 9, "amount": 9}])
    test.batch(orders=ROWS[:1]).batch(orders=ROWS[1:2], kill="before_commit")
    test.expect([{"id": 0, "amount": 0.5}, {"id": 1, "amount": 1.5}])


def test_changes_of_a_database_by_its_slot(lake: Lake) -> None:
    topic = Kafka.source("shop.public.orders").servers("b:9092")
    source = Cdc.debezium(topic).slot("debezium", "postgresql://helios@db-1:5432/shop")
    test = lake.test(source.incremental() >> sink().upsert("id"))
    test.batch([("c", None, {"id": 1, "name": "ann"})], kill="before_commit").expect([{"id": 1, "name": "ann"}])


def test_a_mirror(lake: Lake) -> None:
    source = Cdc.debezium(Kafka.source(pattern=r"shop\..*").servers("b:9092")).incremental()
    test = lake.test(source >> Iceberg.mirror("local.copy"))
    orders, users = ("c", None, {"id": 1, "name": "ann"}), ("c", None, {"uid": 7})
    test.batch({"shop.public.orders": [orders], "shop.public.users": [users]})
    test.expect([{"id": 1}], table="copy.orders").expect([{"uid": 7}], table="copy.users")


# targets


def test_each_write_mode(lake: Lake) -> None:
    lake.table("shop.merged", "id bigint, amount double")
    lake.table("shop.erased", "id bigint, amount double", [{"id": 1, "amount": 1}, {"id": 9, "amount": 1}])
    merge = (
        "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET amount = batch.amount "
        "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (batch.id, batch.amount)"
    )
    one = Iceberg.source("shop.orders").incremental() >> select("id", "amount")
    modes: dict[str, tuple[Pipeline, list[tuple[int, float]]]] = {
        "appended": (one >> sink("shop.appended"), [(1, 1), (2, 2), (1, 3)]),
        "upserted": (one >> sink("shop.upserted").upsert("id", order_by="amount"), [(1, 3), (2, 2)]),
        "versions": (
            one >> sink("shop.versions").upsert("id", order_by="amount", history=True),
            [(1, 1), (2, 2), (1, 3)],
        ),
        "filtered": (one >> sink("shop.filtered").overwrite("id > 0"), [(1, 3)]),
        "parts": (one >> sink("shop.parts").partition_by("id").overwrite_partitions(), [(1, 3), (2, 2)]),
        "merged": (one >> sink("shop.merged").merge_sql(merge), [(1, 3), (2, 2)]),
        "erased": (one >> sink("shop.erased").delete("id"), [(9, 1)]),
        "audited": (one >> sink("shop.audited").audit({"some": "count(*) > 0"}).publish(), [(1, 1), (2, 2), (1, 3)]),
        "side": (one >> sink("shop.side").branch("side"), [(1, 1), (2, 2), (1, 3)]),
    }
    test = lake.test([pipeline for pipeline, _ in modes.values()] + [one >> sink("shop.r").route(by="id")])
    test.batch(orders=[{"id": 1, "amount": 1.0}, {"id": 2, "amount": 2.0}])
    test.batch(orders=[{"id": 1, "amount": 3.0}], kill="after_commit")
    for name, (_, rows) in modes.items():
        test.expect([{"id": id, "amount": amount} for id, amount in rows], table=f"shop.{name}")
    test.expect([{"amount": 1}, {"amount": 3}], table="shop.r_1")


def test_records_of_a_topic_that_is_written(lake: Lake) -> None:
    out = Kafka.sink("out").servers("b:9092").key("customer")
    back = (
        Kafka.source("out")
        .servers("b:9092")
        .value("json", schema="id bigint, customer string, amount double")
        .incremental()
    )
    test = lake.test([ORDERS >> select("id", "customer", "amount") >> out, back >> sink()])
    test.batch(orders=[{"id": 1, "customer": "ann", "amount": 2.5}])
    test.expect([{"id": 1, "customer": "ann", "amount": 2.5}], table="out").expect([{"id": 1, "amount": 2.5}])
    assert [(record.key, record.value) for record in lake.records("out")] == [
        (b"ann", b'{"id":1,"customer":"ann","amount":2.5}')
    ]
    test.batch(orders=[{"id": 2, "customer": None, "amount": 1}], kill="after_commit")
    test.expect([{"id": 1}, {"id": 2}, {"id": 2}], table="out")  # at least once, as Kafka has it
    with pytest.raises(InputError, match="invariant\\(\\) compares tables, and"):
        test.invariant()
    texts = lake.test(ORDERS >> select("customer AS value") >> Kafka.sink("texts").servers("b:9092").value("string"))
    texts.batch(orders=[{"id": 3, "customer": "bob", "amount": 1}])
    texts.expect([{"key": None, "value": one} for one in ("ann", None, "bob")])


# the clock, and plans


@pytest.mark.parametrize("text", ["current_timestamp()", "now()"])
def test_the_clock_is_the_tests(lake: Lake, text: str) -> None:
    test = lake.test(ORDERS >> with_columns(at=text) >> sink())
    lake.clock("2026-05-05T10:00Z")
    test.batch(orders=[{"id": 1}])
    lake.clock("2026-05-06T10:00Z")
    test.batch(orders=[{"id": 2}])
    test.expect([{"id": 1, "at": "2026-05-05T10:00Z"}, {"id": 2, "at": "2026-05-06T10:00Z"}])


def test_plans_and_columns_need_no_lake() -> None:
    pipeline = Memory.source([{"id": 1}]) >> where("id > 0") >> sink()
    assert schema(pipeline) == {"id": "bigint"}
    assert_plan(pipeline, "where(id > 0)")
    with pytest.raises(Different, match=r"no line 'where\(id > 1\)':\n  nearest: .*where\(id > 0\)"):
        assert_plan(pipeline, "where(id > 1)")


# invariant


_NUMBERS = itertools.count()
_SEEN: set[int] = set()


def random(df: DataFrame) -> DataFrame:
    return df.withColumn("chance", F.rand())


def counted(df: DataFrame) -> DataFrame:
    return df.withColumn("number", F.lit(next(_NUMBERS)))


def start_of_batch(df: DataFrame) -> DataFrame:
    first = None if df.isStreaming else df.agg(F.min("id")).first()
    return df.withColumn("start", F.lit(first[0] if first is not None else 0).cast("bigint"))


def with_the_row_before(df: DataFrame) -> DataFrame:
    near = F.sum("amount").over(Window.orderBy("id").rowsBetween(-1, 0))
    return df.withColumn("near", F.lit(0.0) if df.isStreaming else near)


def now(df: DataFrame) -> DataFrame:
    return df.withColumn("at", F.current_timestamp())


def grouped(df: DataFrame) -> DataFrame:
    return df.groupBy("customer").agg(F.sum("amount").alias("total"))


def numbered(df: DataFrame) -> DataFrame:
    return df.withColumn("number", F.monotonically_increasing_id())


def one_row(df: DataFrame) -> DataFrame:
    return df.limit(1)


def of_file(df: DataFrame) -> DataFrame:
    return df.withColumn("file", F.element_at(F.split(F.input_file_name(), "/"), -1))


def unseen(df: DataFrame) -> DataFrame:
    if df.isStreaming:
        return df
    new = [row.id for row in df.select("id").collect() if row.id not in _SEEN]
    _SEEN.update(new)
    return df.where(F.col("id").isin(new))


def doubled(df: DataFrame) -> DataFrame:
    return df.withColumn("double", F.col("amount") * 2)


MEMORY = Memory.source([], schema="id bigint, customer string, amount double, ts timestamp")
FOLDER = Files.source("/real/orders", "parquet", schema=COLUMNS).incremental()
ADDING = """MERGE INTO target USING (SELECT customer, count(*) AS n FROM batch GROUP BY customer) b
    ON target.customer = b.customer WHEN MATCHED THEN UPDATE SET n = target.n + b.n
    WHEN NOT MATCHED THEN INSERT (customer, n) VALUES (b.customer, b.n)"""
LARGEST = ADDING.replace("count(*)", "max(id)").replace("target.n + b.n", "greatest(target.n, b.n)")

FAULTS: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "rand": (lambda: ORDERS >> where("id >= 0") >> random >> sink(), r"before call\(random\)"),
    "counter": (lambda: ORDERS >> counted >> sink(), r"before call\(counted\)"),
    "ties": (
        lambda: ORDERS >> with_columns(k="1") >> sink().upsert("customer", order_by="k"),
        "difference begins in the write",
    ),
    "merge": (lambda: ORDERS >> sink("shop.merged").merge_sql(ADDING), "fed twice"),
    "batch": (lambda: ORDERS >> start_of_batch >> sink(), r"before call\(start_of_batch\)"),
    "window": (lambda: ORDERS >> doubled >> with_the_row_before >> sink(), r"before call\(with_the_row_before\)"),
    "now": (lambda: ORDERS >> now >> sink(), r"before call\(now\)"),
    "group": (lambda: MEMORY >> grouped >> sink(), r"before call\(grouped\)"),
    "increasing": (lambda: MEMORY >> numbered >> sink(), r"before call\(numbered\)"),
    "limit": (lambda: ORDERS >> where("id >= 0") >> one_row >> doubled >> sink(), r"before call\(one_row\)"),
    "files": (lambda: FOLDER >> of_file >> sink(), r"before call\(of_file\)"),
    "global": (lambda: ORDERS >> unseen >> sink(), "keeps between runs"),
    "spread": (lambda: ORDERS >> with_columns(task="spark_partition_id()") >> sink(), "how rows are spread over tasks"),
}

CUSTOMERS = Iceberg.source("shop.customers")
RIGHT: dict[str, Callable[[], Pipeline]] = {
    "append": lambda: ORDERS >> where("amount > 1") >> with_columns(x="amount * 2") >> sink(),
    "callable": lambda: ORDERS >> doubled >> sink(),
    "newest": lambda: ORDERS >> sink().upsert("customer", order_by="id"),
    "deletes": lambda: ORDERS >> sink().upsert("customer", order_by="id", delete_when="id = 3"),
    "versions": lambda: ORDERS >> sink().upsert("customer", order_by="ts", history=True),
    "totals": lambda: ORDERS >> aggregate("customer", total="sum(amount)") >> sink().upsert("customer"),
    "windows": lambda: (
        ORDERS >> watermark("ts", "30 minutes") >> window("ts", "2 hours").agg(total="sum(amount)") >> sink()
    ),
    "dedupe": lambda: ORDERS >> watermark("ts", "1 day") >> dedupe("id", within="1 hour") >> sink(),
    "join": lambda: ORDERS >> join(CUSTOMERS, on="customer") >> sink(),
    "union": lambda: ORDERS >> where("id < 2") >> union(ORDERS >> where("id >= 2")) >> sink(),
    "files": lambda: FOLDER >> expect({"some": "amount > 1"}, on_fail="drop") >> sink(),
    "merge": lambda: ORDERS >> sink("shop.merged").merge_sql(LARGEST),
}


def filled(lake: Lake, pipeline: Pipeline) -> Any:
    lake.table("shop.merged", "customer string, n bigint")
    lake.table("shop.customers", "customer string, country string", [{"customer": "a", "country": "DE"}])
    if pipeline.stream.source is ORDERS:
        lake.table("shop.orders", COLUMNS)
    test = lake.test(pipeline)
    name = "memory" if pipeline.stream.source is MEMORY else "orders"
    return test.batch({name: ROWS[:2]}).batch({name: ROWS[2:]})


@pytest.mark.promise("invariant")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.cases(short="batch", landing="merge")
def test_a_planted_fault_is_caught(lake: Lake, fault: str) -> None:
    made, said = FAULTS[fault]
    _SEEN.clear()
    test = filled(lake, made())
    with pytest.raises(Different, match=said):
        test.invariant(cuts=2, replays=2, shuffles=1)


@pytest.mark.promise("invariant")
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.cases(landing="append")
def test_a_right_pipeline_is_not(lake: Lake, name: str) -> None:
    told = filled(lake, RIGHT[name]()).invariant(cuts=1, replays=2, shuffles=1)
    assert len(told.ways) == 4


@pytest.mark.promise("invariant")
def test_rows_behind_a_watermark_are_left_out_and_counted(lake: Lake) -> None:
    steps = watermark("ts", "30 minutes") >> window("ts", "1 hour").agg(n="count(*)")
    lake.table("shop.orders", COLUMNS)
    test = lake.test(ORDERS >> steps >> sink())
    late = {"id": 9, "customer": "a", "amount": 1.0, "ts": "2026-01-01T00:10Z"}
    test.batch(orders=ROWS).batch(orders=[late])
    assert "1 late row left out" in str(test.invariant(cuts=1, replays=1, shuffles=0))


def test_the_page_runs(shared_spark: SparkSession, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    for block in blocks("docs/testing.md"):
        exec(block, made)
    tests = {name: function for name, function in made.items() if name.startswith("test_")}
    assert len(tests) >= 5
    for name, function in tests.items():
        with Lake(tmp_path / name) as lake:
            function(lake)
