"""The pipelines of a test in its lake: each source is one of the test's, each target one of the lake's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.engine import runnable
from helios.errors import InputError
from helios.model.flow import Pipeline, Source
from helios.plan.compile import compile_pipelines
from helios.plan.nodes import Plan, ReadPath
from helios.sources.kafka.transport import STAND_INS
from helios.testing.feeds import MEMORY, Feed, TableFeed, TopicFeed, feed_of, is_topic, kafka_source_of, with_broker
from helios.testing.names import named, sources_of, with_sources

if TYPE_CHECKING:
    from helios.spark.run.events import Event
    from helios.testing.lake import Lake

Kill: TypeAlias = Literal["after_rejects", "before_commit", "after_commit"]
KILLS: tuple[Kill, ...] = ("after_rejects", "before_commit", "after_commit")

Batch: TypeAlias = dict[str, list[Any]]
"""The prepared rows of a batch, by the full name of their source."""


class Stage:
    """Pipelines whose sources and targets are those of a test.

    Args:
        lake: The lake.
        pipelines: The pipelines, as their scripts declare them.

    Raises:
        InputError: One reads or writes what a test cannot replace.
    """

    def __init__(self, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
        self.lake = lake
        self.declared = list(pipelines)
        self.context = lake.context(pipelines)
        self._here = [lake.sink(one) for one in pipelines]
        self.feeds: dict[str, Feed] = {}
        self._slots = [[self._feed(source) for source in sources_of(one)] for one in pipelines]
        self.pipelines()  # refuses what cannot be replaced

    def plans(self) -> list[Plan]:
        """The plans of the pipelines in the lake.

        Raises:
            HeliosError: They do not compile.
        """
        for feed in self.feeds.values():
            feed.ensure_readable()
        return runnable(*compile_pipelines(self.pipelines(), self.context, lenient=True))

    def pipelines(self) -> list[Pipeline]:
        """The pipelines over what stands in for their sources, as it is now."""
        return [
            with_sources(one, [self._source(feed, source) for feed, source in zip(slots, sources_of(one), strict=True)])
            for one, slots in zip(self._here, self._slots, strict=True)
        ]

    def named(self, name: str) -> Feed:
        """The source that a name of a test means.

        Raises:
            InputError: It is none.
        """
        for slots, pipeline in zip(self._slots, self.declared, strict=True):
            for feed, source in zip(slots, sources_of(pipeline), strict=True):
                if feed is None and name not in self.feeds and is_topic(name, source):
                    self.feeds[name] = TopicFeed(name, source, self.lake.topics)
        return named(name, self.feeds, "source")

    def reads(self, name: str) -> bool:
        """True if a source of this full name is one of the test."""
        return name in self.feeds

    def like(self, name: str, feed: Feed) -> None:
        """Takes over what another test knows of a source: the columns of its rows, and topics of a pattern."""
        own = self.feeds.get(name)
        if isinstance(own, TableFeed) and isinstance(feed, TableFeed):
            own.declare(feed.schema())
        elif own is None and isinstance(feed, TopicFeed):
            self.named(name)

    def run(
        self, kill: Kill | None, emit: Callable[[Event], None], *, again: bool = False, strict: bool = True
    ) -> None:
        """Runs each pipeline until it has drained its sources.

        Args:
            kill: Where the driver of each dies once.
            emit: Takes the events.
            again: Whether a batch of the same rows came before.
            strict: Whether a kill that is not reached is an error.
        """
        from helios.testing.spark import runs

        plans = self.plans()
        spark = self.lake.start([one for plan in plans for one in plan.components])
        self._stand_in_topics()
        reached = False
        for plan in plans:
            repeats = again and plan.path is ReadPath.BATCH
            if kill is not None:
                reached = runs.run_killed(plan, spark, emit, kill, repeats) or reached
            runs.run(plan, spark, emit, again=repeats and kill is None)
        if kill is not None and not reached and strict:
            raise InputError(f"no batch came to the moment {kill!r}: it had no rows that reach the target.")

    def _stand_in_topics(self) -> None:
        from helios.testing.spark.topics import GivenTopics

        logs = self.lake.topics.logs
        STAND_INS[self.lake.topics.broker] = lambda source: GivenTopics(source, logs)

    def _source(self, feed: Feed | None, source: Source) -> Source:
        if feed is not None:
            return feed.stand_in(source)
        if kafka_source_of(source) is not None:
            return with_broker(source, self.lake.topics.broker)
        return TableFeed(self._table(source), None).stand_in(source)

    def _feed(self, source: Source) -> Feed | None:
        """What the test gives to a source; None for a target of another pipeline, and for topics of a pattern."""
        if source.reference is not None:
            table = self._table(source)
            written = table.text in self._written()
            return None if written else self._known(TableFeed(table, self.lake.declared.get(table.text)), source)
        kafka = kafka_source_of(source)
        if kafka is not None:
            topics = [self._known(self._topic(one, source), source) for one in kafka.topics]
            return topics[0] if topics else None
        others = sum(name.startswith(MEMORY) for name in self.feeds)
        made = feed_of(source, self.lake.folder / "files", f"{MEMORY}{others + 1 if others else ''}")
        if made is None:
            raise InputError(
                f"{source.label()} reads what a test cannot replace.",
                where=source.origin,
                fix="test the steps behind it over a table or over Memory.source(...).",
            )
        return self._known(made, source)

    def _topic(self, name: str, source: Source) -> TopicFeed:
        keys = next(
            (one.sink.mode.keys for one in self._here if source in sources_of(one) and hasattr(one.sink, "mode")), ()
        )
        return TopicFeed(name, source, self.lake.topics, keys)

    def _known(self, feed: Feed, source: Source) -> Feed:
        found = self.feeds.setdefault(feed.name, feed)
        found.followed = found.followed or source.streaming
        return found

    def _table(self, source: Source) -> TableName:
        """The table of the lake that a source reads."""
        assert source.reference is not None
        table, catalog = source.reference
        here = self.lake.catalog(catalog.name) if isinstance(catalog, Catalog) else catalog
        return self.context.resolve(table, here, source.origin)

    def _written(self) -> set[str]:
        sinks = [one.sink.iceberg for one in self._here if one.sink.iceberg is not None]
        return {self.context.resolve(one.table, one.catalog, one.origin).text for one in sinks}
