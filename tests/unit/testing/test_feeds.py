"""The sources and targets of `helios.testing` without Spark: a range of history, and the records of a topic as rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Iceberg, Kafka
from helios.catalog.names import TableName
from helios.errors import InputError
from helios.plan.typing.schema import from_ddl
from helios.sources.iceberg.declare import Between, IcebergSource
from helios.testing import Record
from helios.testing.feeds import TableFeed
from helios.testing.outputs import _of_topic

pytestmark = pytest.mark.promise("testing")


def read(feed: TableFeed, source: IcebergSource) -> Between | None:
    """The range that is read instead of a source's."""
    given = feed.stand_in(source)
    assert isinstance(given, IcebergSource)
    return given.between_points


def ids(catalog: Catalog, between: Any) -> list[int]:
    table = catalog.load("shop.orders").iceberg
    old, new = (table.scan(snapshot_id=one).to_arrow()["id"].to_pylist() for one in (between.after, between.to))
    return sorted(set(new) - set(old))


def test_a_range_has_the_rows_of_the_last_batch(tmp_path: Path) -> None:
    catalog = Catalog.local(path=tmp_path)
    feed = TableFeed(TableName(catalog, ("shop",), "orders"), "id bigint")
    source = Iceberg.source("shop.orders").between(1, 2)
    assert read(feed, source) == Between(1, 2)  # until something is known of the table
    feed.ensure_readable()
    assert ids(catalog, read(feed, source)) == []
    for batch in ([{"id": 1}], [{"id": 2}, {"id": 3}]):
        feed.deliver(feed.prepare(batch))
        assert ids(catalog, read(feed, source)) == [row["id"] for row in batch]
    followed = TableFeed(TableName(catalog, ("shop",), "orders"), "id bigint")
    before = len(catalog.load("shop.orders").snapshots())
    followed.ensure_readable()
    assert read(followed, Iceberg.source("shop.orders").incremental()) is None
    assert len(catalog.load("shop.orders").snapshots()) == before


@pytest.mark.parametrize(
    ("value", "given", "rows"),
    [
        (("json",), [b'{"id": 1, "amount": 2.50, "raw": "eA=="}'], [{"id": 1, "amount": 2.5, "raw": "eA=="}]),
        (("string", "name"), [b"ann", None, b""], [{"key": b"k", "value": one} for one in ("ann", None, "")]),
        (("bytes", "raw"), [b"\x00", None], [{"key": b"k", "value": one} for one in (b"\x00", None)]),
    ],
    ids=["json", "string", "bytes"],
)
def test_records_are_rows(value: tuple[Any, ...], given: Sequence[bytes | None], rows: list[dict[str, Any]]) -> None:
    sink = Kafka.sink("out").servers("b:9092").value(*value)
    schema = from_ddl("id bigint, amount double, raw binary")
    found, columns = _of_topic(sink, schema, [Record(value=one, key=b"k") for one in given])
    assert found == rows
    assert set(rows[0]) == set(columns.names)


def test_a_record_of_another_writer_is_named() -> None:
    sink = Kafka.sink("out").servers("b:9092")
    with pytest.raises(InputError, match=r"out, row 1 has no column 'idd'\. Did you mean 'id'"):
        _of_topic(sink, from_ddl("id bigint"), [Record(value=b'{"idd": 1}')])
    with pytest.raises(InputError, match="record 1 of topic out is not a JSON object"):
        _of_topic(sink, from_ddl("id bigint"), [Record(value=b"{broken")])
