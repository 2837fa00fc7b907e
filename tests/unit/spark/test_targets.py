"""Every kind of target has what writes it, and every mode its writer."""

from __future__ import annotations

import pytest

from helios import Console, Iceberg, Kafka, Memory
from helios.model.flow import Sink
from helios.model.modes import MODES
from helios.model.target import TargetKind
from helios.spark.sinks.kinds import OTHER_SINKS, SINGLE_TABLE_SINKS
from helios.spark.sinks.modes import WRITERS

pytestmark = pytest.mark.promise("compose")

TABLE, MIRROR = Iceberg.sink("a.t"), Iceberg.mirror("local.shop")


def test_each_kind_has_one_sink() -> None:
    assert set(SINGLE_TABLE_SINKS) == {kind for kind in TargetKind if kind.one_table}
    assert set(OTHER_SINKS) == set(TargetKind) - set(SINGLE_TABLE_SINKS)


def test_each_mode_is_written() -> None:
    assert set(WRITERS) == set(MODES)


@pytest.mark.parametrize(
    ("sink", "kind", "many"),
    [
        (TABLE, TargetKind.TABLE, False),
        (TABLE.branch("b").upsert("id"), TargetKind.TABLE, False),
        (TABLE.audit({"some": "count(*) > 0"}).publish(), TargetKind.AUDITED, False),
        (TABLE.route(by="country"), TargetKind.ROUTED, True),
        (MIRROR, TargetKind.MIRROR, True),
        (Iceberg.mirror("local.shop", atomic=True), TargetKind.ATOMIC_MIRROR, True),
        (Memory.sink("m"), TargetKind.OUTPUT, False),
        (Console.sink(), TargetKind.OUTPUT, False),
        (Kafka.sink("t"), TargetKind.OUTPUT, False),
    ],
)
def test_a_sink_tells_its_kind(sink: Sink, kind: TargetKind, many: bool) -> None:
    assert (sink.target_kind, sink.many_tables, sink.mirrors) == (kind, many, "MIRROR" in kind.name)
    assert (sink.iceberg is sink, sink.target_kind.keeps_record) == (kind is not TargetKind.OUTPUT,) * 2
