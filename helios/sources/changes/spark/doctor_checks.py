"""The checks of `helios doctor` for sources of database changes."""

from __future__ import annotations

from functools import partial

from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.slot_check import check_slot
from helios.sources.changes.topic import TopicChanges
from helios.sources.common.doctor_check import DoctorCheck
from helios.sources.kafka.spark.doctor_checks import kafka


def changes(source: TopicChanges) -> tuple[list[DoctorCheck], list[DoctorCheck]]:
    """The checks of the topic and of the declared replication slot: those that need no JVM, and those that need one."""
    without_jvm, with_jvm = kafka(source.kafka)
    slot = source.replication_slot if isinstance(source, CdcSource) else None
    if slot is not None:
        without_jvm.append(DoctorCheck(f"replication slot {slot.name}", partial(check_slot, slot, source.origin)))
    return without_jvm, with_jvm
