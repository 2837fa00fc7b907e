"""JSON of Kafka that is read in one pass means what it means to Spark's parser and the casts behind it."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from helios import Kafka
from helios.sources.common.spark.plain_json import parse_plain_json
from helios.sources.common.spark.run_state import RejectedInput
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark import rows as kafka_rows
from helios.spark.jvm.sql import quoted

pytestmark = pytest.mark.promise("bad-rows")

TYPES = {
    "b": "tinyint", "s": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double", "m": "decimal(8,2)",
    "w": "decimal(30,5)", "o": "boolean", "t": "string", "y": "date", "z": "timestamp", "n": "timestamp_ntz",
    "a": "array<decimal(5,1)>", "u": "struct<x:int,`é`:struct<z:timestamp>>", "p": "map<string,int>", "v": "binary",
}  # fmt: skip
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words("""0 -0 -0.0 1 127 128 -129 32767 32768 2147483648 -2147483649 9223372036854775807 9223372036854775808
    999999999999999999 1.0 1.25 1.255 -9999.95 999999.99 1000000 1e3 1E-3 1e400 1e-400 00 01 .5 5. 1e - +1 0x10 NaN 1d
    -Infinity 0.30000000000000004 9007199254740993 4.9e-324 16777217.5 3.4028236e38 0.1234567890123456789""")
TIMES = words("""2026-01-01 2024-02-29 2026-02-29 1582-10-10 0000-01-01 0001-01-01T00:00:00+17:00 2026-1-1 noon 12:00
    2026-01-01T10:11:12Z 2026-01-01T10:11:12 2026-01-01T10:11:12.123456Z 2026-01-01T10:11:12.1234567Z 2026-13-01
    1969-12-31T23:59:59.9-17:59 2026-01-01T10:11:12+18:00 2026-01-01T24:00:00Z 2026-01-01T10:11:60Z 2026-01-01T10:11
    2026-01-01T10:11:12.Z 12026-01-01 2026-04-31T01:02:03Z 2026-01-01T10:11:12+0200 2026-01-01T10:11:12UTC""")
TEXTS = [
    r'"a\n\"\\\/\b\f\r\t"', r'"\u00e9\u0000\u2028"', r'"\ud83d\ude00"', r'"\ud800"', r'"\x"', '"\t"', '"é😀"', '"',
]  # fmt: skip
OTHERS = words("""null nul nullx true True [] {} [1.5,"2.5",null] [1.55] [1,] [1;2] {"x":1} {"x":"1"} {"X":1}
    {"x":1,"x":2} {"x":1,"k":[{}]} {"é":{"z":"2026-01-01T00:00:00Z"}} {"é":{"z":1}} {"a":1,"a":2} "YWI=" [[1]]""")
VALUES = [
    *NUMBERS,
    *[f'"{text}"' for text in (*NUMBERS[::3], *TIMES)],
    *["1767225600", "'single'", *TEXTS, *OTHERS],
]
WHOLE = [
    b"", b"{}", b" \n{ \t} \r", b"{", b"}", b"null", b"[{}]", b'\xef\xbb\xbf{"i":1}', b'{"i":1}x', b'{"i":1},',
    b'{"i":1}{"i":2}', b'{"i":1 "s":2}', b'{"i" 1}', b'{"i":1,}', b'{,"i":1}', b'{"i":1,"i":1}', b'{"i":1,"I":1}',
    b'{"I":1}', b'{"\\u0069":1}', b'{"k":1}', b'{"k":{"k":[1,"a",null,{"k":true}]},"i":2}', b'{"k":{"k" 1}}',
    b'{"k":[1,]}', b'{"k":tru}', b'{"i":1,"t":"a"}\0', b'{"z":"2026-01-01T00:00:00Z","i":1}', b'{"k":"\xff"}',
    *[b'{"t":"' + text + b'"}' for text in (
        b"\xff", b"\xc0\x80", b"\xc2\x80", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xe0\x80\x80", b"\xe2\x82", b"\x7f",
        b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf0\x9f\x98", b"\x80",
    )],
]  # fmt: skip
CASES = [*WHOLE, *[f'{{"{name}":{value}}}'.encode() for name, value in product(TYPES, VALUES)]]


def test_plain_values_are_what_they_are_by_the_long_way(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(spark: SparkSession, value: Column, *given: Any, **named: Any) -> Column:
        return parse_plain_json(spark, F.lit(None).cast("binary"), *given, **named)

    for extra in ("fail", "ignore"):
        source = Kafka.source("t").servers("b:1").value("json", schema=SCHEMA, extra=extra)
        found = judged(records(world, CASES), source)
        with monkeypatch.context() as patched:
            patched.setattr(kafka_rows, "parse_plain_json", nothing)
            long = judged(records(world, CASES), source)
        differ = [(case, found[n], long[n]) for n, case in enumerate(CASES) if found[n] != long[n]]
        assert differ == []


def test_which_values_are_plain(world: Any) -> None:
    good = b"""{"b": -1, "s": 2, "i":3,"l":999999999999999999, "f": 1.5, "d": -2.25e3, "m": "1.2", "o": true,
        "t": "\xc3\xa9 \\"", "y": "2026-01-01", "z": "2026-01-01T00:00:00.5+01:00", "n": "2026-01-01 00:00:00",
        "a": [1, "2.5", null], "u": {"x": 1, "\xc3\xa9": {"z": "2026-01-01T00:00:00Z"}}, "w": null}"""
    unsure = [
        good + b"!",
        b'{"p": {}}',
        b'{"k": 1}',
        b'{"i": 1.0}',
        b'{"m": 1.255}',
        b'{"t": "\xff"}',
        b'{"i": "1"}',
    ]
    source = Kafka.source("t").servers("b:1").value("json", schema=SCHEMA)
    df = records(world, [good, b"{}", *unsure])
    columns = kafka_rows.value_columns(source)
    found = df.select(
        parse_plain_json(df.sparkSession, F.col("value"), columns, skips_unknown=False).isNotNull()
    ).collect()
    assert [is_plain for (is_plain,) in found] == [True, True, *[False] * len(unsure)]


def records(world: Any, values: list[bytes]) -> DataFrame:
    rows = [(None, bytearray(value), "t", 0, offset, None, 0) for offset, value in enumerate(values)]
    columns = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    made: DataFrame = world.spark.createDataFrame(rows, f"{columns}, timestampType int").coalesce(1)
    return made


def judged(df: DataFrame, source: KafkaSource) -> dict[int, Any]:
    """Of each record its columns, or why it is bad."""
    aside = RejectedInput()
    rows = kafka_rows.rows(df, source.metadata("offset").on_bad_row("quarantine"), aside, positioned=False)
    shown = [F.col(quoted(name)).cast("string") if kind in ("date", "timestamp", "timestamp_ntz") else quoted(name)
             for name, kind in TYPES.items()]  # fmt: skip
    found: dict[int, Any] = {row.offset: repr(row) for row in rows.select("offset", *shown).collect()}
    [bad] = aside.rejected_rows
    found |= {json.loads(row.payload)["offset"]: row.reason for row in bad.collect()}
    assert len(found) == df.count()
    return {
        offset: what.partition(",")[2] if what.startswith("Row(offset=") else what for offset, what in found.items()
    }
