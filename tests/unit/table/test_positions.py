"""Positions as ledgers and checkpoints keep them, parsed in one place."""

from __future__ import annotations

from typing import Any

import pytest

from helios.sources.iceberg.kind import ICEBERG
from helios.sources.iceberg.offsets import IcebergOffset, range_between
from helios.table.positions import Batch, Recorded, Span, recorded_entries, same_input

pytestmark = pytest.mark.promise("formats")

RANGE = {"source": "local.a.s", "uuid": "u", "branch": None, "from": "start='current'", "changes": False}


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        # snapshot ranges: the offset has more to say than the last snapshot
        (
            {**RANGE, "state": None, "after": 1, "to": 2, "place": {"snapshot_id": 2}},
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset(snapshot=2)),
        ),
        (
            {
                **RANGE,
                "state": 2,
                "after": 2,
                "to": 2,
                "taken": 3,
                "place": {"snapshot_id": 2, "files": 3, "state": True},
            },
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset(snapshot=2, files=3, state=True)),
        ),
        (
            {**RANGE, "changes": True, "branch": "b", "to": None, "place": {"snapshot_id": 2}},
            Recorded(source="local.a.s", branch="b", changes=True, kind=ICEBERG, position=IcebergOffset(snapshot=2)),
        ),
        ({**RANGE, "to": 7}, Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset(snapshot=7))),
        (
            {**RANGE, "to": None, "place": {"snapshot_id": -1}},
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset()),
        ),
        # a stateful stream: what Spark's offset log has
        (
            {"source": "local.a.s", "to": {"version": 1, "snapshot_id": 5, "position": 3, "scan_all_files": False}},
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset(snapshot=5)),
        ),
        ({"source": "local.a.s", "branch": "b", "to": None}, Recorded(source="local.a.s", branch="b")),
        ({"source": "/in", "to": {"n": 3}}, Recorded(source="/in", unknown_kind=True)),
        # a batch pipeline
        (
            {"source": "local.a.s", "uuid": "u", "snapshot": 4},
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset(snapshot=4)),
        ),
        (
            {"source": "local.a.s", "uuid": "u", "snapshot": None},
            Recorded(source="local.a.s", kind=ICEBERG, position=IcebergOffset()),
        ),
        ({"source": "memory", "digest": "d"}, Recorded(source="memory")),
    ],
)
def test_every_form_of_an_entry(entry: dict[str, Any], found: Recorded) -> None:
    assert list(recorded_entries({"sources": [entry], "pins": {}})) == [found]


@pytest.mark.parametrize("position", [None, {}, {"sources": None}, {"sources": ["x", 3, {"to": 1}, {"source": 7}]}])
def test_what_is_no_entry_is_left_out(position: Any) -> None:
    assert list(recorded_entries(position)) == []


@pytest.mark.parametrize(
    "offset",
    [
        IcebergOffset(),
        IcebergOffset(snapshot=1),
        IcebergOffset(snapshot=1, files=0, state=True, rows=4, live=9),
        IcebergOffset(snapshot=3, files=2, after=1),
        IcebergOffset(snapshot=3, files=2, state=True, since=40),
    ],
)
def test_an_offset_survives_its_json(offset: IcebergOffset) -> None:
    assert IcebergOffset.parse(offset.as_json()) == offset
    assert IcebergOffset.of(offset.as_json()) == offset
    assert offset.partial is (offset.files is not None)


@pytest.mark.parametrize("value", [None, "7", 1.5, [], {}, {"snapshot_id": None}, {"snapshot_id": "7"}, {"n": 1}])
def test_what_is_no_offset_of_a_table(value: object) -> None:
    assert IcebergOffset.of(value) is None


STATE = IcebergOffset(snapshot=5, files=0, state=True)


@pytest.mark.parametrize(
    ("before", "end", "expected"),
    [
        (IcebergOffset(), IcebergOffset(), {"state": None, "after": None, "to": None}),
        (IcebergOffset(snapshot=5), IcebergOffset(snapshot=5), {"state": None, "after": None, "to": None}),
        (IcebergOffset(snapshot=5), IcebergOffset(snapshot=7), {"state": None, "after": 5, "to": 7}),
        (STATE, IcebergOffset(snapshot=7), {"state": 5, "after": 5, "to": 7}),
        (
            STATE,
            IcebergOffset(snapshot=5, files=3, state=True),
            {"state": 5, "after": 5, "to": 5, "skipped": 0, "taken": 3},
        ),
        (
            IcebergOffset(snapshot=7, files=2, after=5),
            IcebergOffset(snapshot=9),
            {"state": None, "after": 5, "to": 9, "skipped": 2, "taken": None},
        ),
        (
            IcebergOffset(snapshot=5),
            IcebergOffset(snapshot=9, files=1, state=True, since=30),
            {"state": 9, "after": 9, "to": 9, "skipped": 0, "taken": 1, "since": 30},
        ),
    ],
)
def test_the_range_between_two_offsets(before: IcebergOffset, end: IcebergOffset, expected: dict[str, Any]) -> None:
    assert range_between(before, end).as_json() == expected


def test_a_batch_is_known_by_what_it_reads() -> None:
    entry = {"source": "local.a.s", "to": 2}
    batch = Batch(number=3, spans=(Span("local.a.s", {"snapshot_id": 1}, {"snapshot_id": 2}, entry),), pins={"1": 9})
    assert batch.position == {"sources": [entry], "pins": {"1": 9}}
    assert same_input(batch.position, batch)
    assert same_input({"sources": [entry]}, batch)
    assert not same_input({"sources": [{**entry, "to": 3}]}, batch)
    assert not same_input(None, batch)
