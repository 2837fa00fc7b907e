"""The common base class of the readers of database changes."""

from __future__ import annotations

from typing_extensions import override

from helios.model.columns import LOG_ORDER
from helios.sources.changes.topic import TopicChanges
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark.reader import KafkaReader


class TopicChangesReader(KafkaReader):
    """Reads the records of a topic as changes."""

    @property
    def _changes_source(self) -> TopicChanges:
        assert isinstance(self.read_plan.source, TopicChanges)
        return self.read_plan.source

    @property
    @override
    def _source(self) -> KafkaSource:
        return self._changes_source.kafka

    @property
    def _ordered(self) -> bool:
        """True if an upsert needs the hidden columns of order and deletes; a preview leaves them out."""
        return self.context.plan.write.mode.order_by == LOG_ORDER
