"""The history of a table, and the advice about a long one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog
from helios.table import growth as module
from helios.table.growth import Growth, growth


def test_a_long_history_is_told_with_its_rate_its_size_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog.local(path=tmp_path / ".helios")
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", pa.schema([("id", pa.int64())])).iceberg
    assert growth(table) == Growth(snapshots=0, seconds=0.0)
    for number in range(3):
        table.append(pa.table({"id": pa.array([number], pa.int64())}))
    short = growth(table)
    assert (short.snapshots, short.bytes, short.advice()) == (3, None, None)
    monkeypatch.setattr(module, "MANY", 3)
    long = growth(table)
    assert long.bytes == Path(table.metadata_location.removeprefix("file://")).stat().st_size
    advice = long.advice()
    assert advice is not None
    assert advice.startswith(f"3 snapshots, about {long.commits_a_day:,} commits a day")
    assert '.maintain(expire="5d")' in advice
    assert long.commits_a_day == round(2 * 86400 / long.seconds) > 0
