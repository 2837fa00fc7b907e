"""A text of a file that has types, which the declared type cannot hold as it is, is a bad row."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files

pytestmark = pytest.mark.promise("bad-rows")

CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "decimal(10,2)": (("1.25", "1.2500", " -3 ", "12e-1", "+.5"), ("1.255", "0.001", "123456789", "1e-3", "x")),
    "date": (
        ("2026-01-01", "2026-1-2", "2026-01-01 00:00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01 23:59:59", "2026-01-02Tgarbage", "2026", "2026-13-01", "2026-01-01 00:00:00+05:00"),
    ),
    "timestamp": (
        ("2026-01-01", "2026-01-01 12:30", "2026-01-01T12:30:00.123456Z", "2026-01-01T12:30:00.123456000+05:00"),
        ("12:30", "T12:30:00", "2026-01-01T12:30:00.1234567Z", "2026-01-01Tx"),
    ),
    "timestamp_ntz": (
        ("2026-01-01", "2026-01-01 12:30:00.5"),
        ("2026-01-01T00:00:00+05:00", "2026-01-01T00:00:00Z", "2026-01-01 00:00 UTC", "12:30"),
    ),
    "double": (("1", "-1.5e3", "NaN", "Infinity", "-inf", ".5"), ("1e400", "1d", "2.5f", "0x1p3", "x")),
    "float": (("1.5",), ("1e39", "1f")),
    "bigint": (("9223372036854775807", " 7"), ("1.5", "9223372036854775808")),
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.cases(landing="decimal(10,2)")
def test_what_a_type_cannot_hold_is_a_bad_row(world: Any, kind: str) -> None:
    good, bad = CASES[kind]
    folder = world.folder / "in"
    folder.mkdir()
    pq.write_table(pa.table({"v": [*good, *bad]}), folder / "a.parquet")
    source = Files.source(str(folder), "parquet", schema=f"v {kind}").on_bad_row("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    assert len(list(world.rows("a.t", "v").elements())) == len(good)
    found = [json.loads(json.loads(payload)["text"])["v"] for (payload,) in world.rows("a.q", "payload").elements()]
    assert sorted(found) == sorted(bad)
