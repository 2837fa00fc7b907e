"""What a sink says about writing, as Iceberg's table properties."""

from __future__ import annotations

import pytest

from helios import Iceberg
from helios.model.sink import CODECS, IcebergSink
from helios.plan.properties import (
    MERGE_MODES,
    WRITER_CODECS,
    codec_problems,
    default_format,
    new_table_properties,
    write_overrides,
)

pytestmark = pytest.mark.promise("layout")

SINK = Iceberg.sink("a.t")


def test_new_tables() -> None:
    assert new_table_properties(SINK) == {
        "format-version": "2",
        "write.target-file-size-bytes": str(128 << 20),
        **dict.fromkeys(MERGE_MODES, "merge-on-read"),
    }
    assert new_table_properties(SINK.format_version(3).write_mode("copy-on-write").tune("high_throughput")) == {
        "format-version": "3",
        "write.target-file-size-bytes": str(512 << 20),
        **dict.fromkeys(MERGE_MODES, "copy-on-write"),
    }
    upsert = SINK.upsert("id", order_by="n")
    for sink, version in (
        (SINK.overwrite(), "2"),
        (SINK.table_properties({"format-version": "3"}), "3"),
        (upsert, "3"),
        (upsert.write_mode("copy-on-write"), "3"),
        (upsert.route(by="k"), "3"),
        (upsert.branch("b").audit({"some": "count(*) > 0"}).publish(), "3"),
        (SINK.upsert("id", order_by="n", history=True), "3"),
        (upsert.format_version(2), "2"),
        (SINK.format_version(2).upsert("id"), "2"),
        (upsert.table_properties({"format-version": "2"}), "2"),
    ):
        assert new_table_properties(sink)["format-version"] == version, sink
    assert new_table_properties(SINK.table_properties({"write.merge.mode": "x", "k": "v"}))["write.merge.mode"] == "x"


@pytest.mark.parametrize(
    ("sink", "properties"),
    [
        (SINK, {}),
        (SINK.target_file_size("1KB"), {"write.target-file-size-bytes": "1024"}),
        (SINK.tune("low_latency").target_file_size(7), {"write.target-file-size-bytes": "7"}),
        (SINK.write_mode("merge-on-read"), dict.fromkeys(MERGE_MODES, "merge-on-read")),
        (
            SINK.distribution("hash"),
            {"write.distribution-mode": "hash", "write.merge.distribution-mode": "hash"},
        ),
        (
            SINK.compression("zstd", 3),
            {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "3"},
        ),
        (SINK.compression("none"), {"write.parquet.compression-codec": "uncompressed"}),
        (
            SINK.table_properties({"write.format.default": "ORC"}).compression("gzip"),
            {"write.orc.compression-codec": "zlib"},
        ),
    ],
)
def test_what_every_write_follows(sink: IcebergSink, properties: dict[str, str]) -> None:
    assert write_overrides(sink) == properties
    assert new_table_properties(sink).items() >= properties.items()


def test_an_existing_tables_format_goes_before_the_sinks() -> None:
    sink = SINK.table_properties({"write.format.default": "avro"}).compression("gzip")
    assert default_format(sink) == "avro"
    assert default_format(sink, {}) == "parquet"
    assert write_overrides(sink, "orc") == {"write.orc.compression-codec": "zlib"}


@pytest.mark.parametrize("file_format", list(WRITER_CODECS))
def test_every_codec_is_known_or_refused(file_format: str) -> None:
    for codec in CODECS:
        problems = codec_problems(SINK.compression(codec), file_format)
        assert bool(problems) == (codec not in WRITER_CODECS[file_format])
        for problem in problems:
            assert f"Spark's jars have no such codec for {file_format}" in str(problem)
            assert problem.fix == f"use one of {', '.join(WRITER_CODECS[file_format])}."


@pytest.mark.parametrize(
    ("codec", "level", "file_format", "message"),
    [
        ("zstd", 22, "parquet", None),
        ("zstd", 23, "parquet", "takes levels 1 to 22"),
        ("gzip", 0, "avro", "takes levels 1 to 9"),
        ("lz4", 1, "parquet", "lz4 in parquet has no levels"),
        ("zstd", 3, "orc", "zstd in orc has no levels"),
    ],
)
def test_levels(codec: str, level: int, file_format: str, message: str | None) -> None:
    problems = codec_problems(SINK.compression(codec, level), file_format)
    assert [message in str(p) for p in problems if message] == ([True] if message else [])
