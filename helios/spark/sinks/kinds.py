"""The sink that writes each kind of target."""

from __future__ import annotations

from collections.abc import Mapping

from helios.model.target import TargetKind
from helios.spark.sinks.atomic_mirror import AtomicMirrorSink
from helios.spark.sinks.audit import AuditedSink
from helios.spark.sinks.many_tables import ManyTables
from helios.spark.sinks.mirror import MirrorSink
from helios.spark.sinks.output import OutputSink
from helios.spark.sinks.route import RoutedSink
from helios.spark.sinks.table import TableSink

SINGLE_TABLE_SINKS: Mapping[TargetKind, type[TableSink]] = {
    TargetKind.TABLE: TableSink,
    TargetKind.AUDITED: AuditedSink,
}
"""The sinks that write one table, which the run opens for them."""

OTHER_SINKS: Mapping[TargetKind, type[ManyTables] | type[OutputSink]] = {
    TargetKind.ROUTED: RoutedSink,
    TargetKind.MIRROR: MirrorSink,
    TargetKind.ATOMIC_MIRROR: AtomicMirrorSink,
    TargetKind.OUTPUT: OutputSink,
}
"""The sinks of other targets; those with tables open them themselves."""
