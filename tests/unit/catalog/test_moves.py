"""Tables of an embedded catalog that move to other metadata together."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog
from helios.catalog.catalogs import CATALOGS
from helios.catalog.connections import client
from helios.catalog.rows import MetadataMove

pytestmark = pytest.mark.promise("mirror")

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog.local(path=tmp_path / ".helios")
    made.create_namespace("a.b")
    for name in ("one", "two"):
        made.create_table(f"a.b.{name}", SCHEMA)
    return made


def pointers(folder: Path) -> dict[str, tuple[str, str | None]]:
    with closing(sqlite3.connect(folder / ".helios/catalog.db")) as db:
        rows = db.execute("SELECT table_name, metadata_location, previous_metadata_location FROM iceberg_tables")
        return {name: (now, before) for name, now, before in rows.fetchall()}


def moved(table: str, before: str, after: str) -> MetadataMove:
    return MetadataMove(("a", "b"), table, before, after, snapshot=-1, schema=0, spec=0, order=0)


def test_all_tables_move_or_none(catalog: Catalog, tmp_path: Path) -> None:
    move = CATALOGS["local"].move
    assert move is not None
    (one, _), (two, _) = (pointers(tmp_path)[name] for name in ("one", "two"))
    before = pointers(tmp_path)
    assert not move(catalog, [moved("one", one, "x"), moved("two", "stale", "y")], client)
    assert not move(catalog, [moved("one", one, "x"), moved("gone", two, "y")], client)
    assert pointers(tmp_path) == before
    assert move(catalog, [moved("one", one, "x"), moved("two", two, "y")], client)
    assert pointers(tmp_path) == {"one": ("x", one), "two": ("y", two)}


def test_every_catalog_says_why_its_tables_cannot_move_together() -> None:
    assert {name for name, row in CATALOGS.items() if row.atomic == bool(row.not_atomic)} == set()
