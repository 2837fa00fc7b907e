"""The pipelines of a test. Feeds replace the sources, and tables of the lake replace the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.engine import require_runnable
from helios.errors import InputError
from helios.model.flow import Pipeline, Source
from helios.plan.compile import compile_pipelines
from helios.plan.nodes import Plan, ReadPath
from helios.sources.kafka.transport import STAND_INS
from helios.testing.diff import hidden
from helios.testing.feeds import Feed, TableFeed, feed_of
from helios.testing.names import sources_of, value_named, with_sources
from helios.testing.topics import TopicFeed, is_topic, kafka_source_of, with_broker

if TYPE_CHECKING:
    from helios.spark.run.events import Event
    from helios.testing.lake import Lake

__tracebackhide__ = hidden

Kill: TypeAlias = Literal["after_rejects", "before_commit", "after_commit"]
KILLS: tuple[Kill, ...] = ("after_rejects", "before_commit", "after_commit")

Batch: TypeAlias = dict[str, list[Any]]
"""The prepared rows of a batch, by the full name of the source."""


class Stage:
    """Pipelines with the sources and targets of a test.

    Args:
        pipelines: The pipelines, as the scripts declare them.

    Raises:
        InputError: A pipeline has a source or target that a test cannot replace.
    """

    def __init__(self, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
        self.lake = lake
        self.declared = list(pipelines)
        self.context = lake.context(pipelines)
        self._in_lake = [lake.with_target_in_lake(pipeline) for pipeline in pipelines]
        self.feeds: dict[str, Feed] = {}
        # For each pipeline, the feeds of its sources, in the order of `sources_of`; None for a source without a feed of
        # its own.
        self._source_feeds = [[self._feed(source) for source in sources_of(pipeline)] for pipeline in pipelines]
        self.pipelines()  # refuses sources that a test cannot replace

    def plans(self) -> list[Plan]:
        """The plans of the pipelines in the lake.

        Raises:
            HeliosError: The pipelines do not compile.
        """
        for feed in self.feeds.values():
            feed.ensure_readable()
        return require_runnable(*compile_pipelines(self.pipelines(), self.context, lenient=True))

    def pipelines(self) -> list[Pipeline]:
        """The pipelines with replaced sources. The replacements may change with each batch."""
        replaced = []
        for pipeline, feeds in zip(self._in_lake, self._source_feeds, strict=True):
            pairs = zip(feeds, sources_of(pipeline), strict=True)
            replaced.append(with_sources(pipeline, [self._replacement(feed, source) for feed, source in pairs]))
        return replaced

    def feed_named(self, name: str) -> Feed:
        """Returns the feed of the source with a name.

        Raises:
            InputError: No source, or several sources, have the name.
        """
        self._add_topic(name)
        return value_named(name, self.feeds, "source")

    def _add_topic(self, name: str) -> None:
        """Adds a feed for a topic, if the pattern of a source matches the topic."""
        for feeds, pipeline in zip(self._source_feeds, self.declared, strict=True):
            for feed, source in zip(feeds, sources_of(pipeline), strict=True):
                if feed is None and name not in self.feeds and is_topic(name, source):
                    self.feeds[name] = TopicFeed(name, source, self.lake.topics)

    def reads(self, name: str) -> bool:
        """True if the test has a source with this full name."""
        return name in self.feeds

    def copy_feed(self, name: str, feed: Feed) -> None:
        """Copies from another test's feed: the columns of a table, or the name of a topic that a pattern matches."""
        own = self.feeds.get(name)
        if isinstance(own, TableFeed) and isinstance(feed, TableFeed):
            own.declare(feed.schema())
        elif own is None and isinstance(feed, TopicFeed):
            self._add_topic(name)

    def run(
        self, kill: Kill | None, emit: Callable[[Event], None], *, again: bool = False, strict: bool = True
    ) -> None:
        """Runs each pipeline until it has drained its sources.

        Args:
            kill: The moment at which the driver of each pipeline dies once; None if no driver dies.
            emit: Called with each event.
            again: Whether an earlier batch already had the same rows.
            strict: Whether to raise `InputError` if no pipeline reaches the moment `kill`.
        """
        from helios.testing.spark import runs

        plans = self.plans()
        spark = self.lake.start([component for plan in plans for component in plan.components])
        self._register_lake_topics()
        reached = False
        for plan in plans:
            # A batch pipeline skips rows that equal the rows of an earlier run, unless `again` is set.
            run_again = again and plan.path is ReadPath.BATCH
            if kill is not None:
                killed = runs.run_killed(plan, spark, emit, kill, run_again)
                reached = reached or killed
            runs.run(plan, spark, emit, again=run_again and kill is None)
        if kill is not None and not reached and strict:
            raise InputError(f"no batch reached the moment {kill!r}: no row reached the target.")

    def _register_lake_topics(self) -> None:
        """Makes sources with the lake's broker read the topics of the lake, instead of a Kafka cluster."""
        from helios.testing.spark.topics import LakeTopics

        logs = self.lake.topics.logs
        STAND_INS[self.lake.topics.broker] = lambda source: LakeTopics(source, logs)

    def _replacement(self, feed: Feed | None, source: Source) -> Source:
        if feed is not None:
            return feed.stand_in(source)
        if kafka_source_of(source) is not None:
            return with_broker(source, self.lake.topics.broker)
        return TableFeed(self._table(source), None).stand_in(source)

    def _feed(self, source: Source) -> Feed | None:
        """The feed of a source.

        None if another pipeline of the test writes the table that the source reads, or if the source reads the topics
        that match a pattern.
        """
        if source.reference is not None:
            table = self._table(source)
            if table.text in self._target_names():
                return None
            return self._shared(TableFeed(table, self.lake.declared.get(table.text)), source)
        kafka = kafka_source_of(source)
        if kafka is not None:
            topics = [self._shared(self._topic(name, source), source) for name in kafka.topics]
            return topics[0] if topics else None
        feed = feed_of(source, self.lake.folder / "files")
        if feed is None:
            raise InputError(
                f"{source.label()} cannot be replaced by a test.",
                where=source.origin,
                fix="test its steps with a table or with Memory.source(...) as the source.",
            )
        if not feed.named and (others := sum(name.startswith(feed.name) for name in self.feeds)):
            feed.name = f"{feed.name}{others + 1}"
        return self._shared(feed, source)

    def _topic(self, name: str, source: Source) -> TopicFeed:
        readers = [pipeline for pipeline in self._in_lake if source in sources_of(pipeline)]
        keys = next((pipeline.sink.mode.keys for pipeline in readers if hasattr(pipeline.sink, "mode")), ())
        return TopicFeed(name, source, self.lake.topics, keys)

    def _shared(self, feed: Feed, source: Source) -> Feed:
        """The first feed with the name of `feed`: all sources with this name share this feed."""
        shared = self.feeds.setdefault(feed.name, feed)
        shared.followed = shared.followed or source.streaming
        return shared

    def _table(self, source: Source) -> TableName:
        """The table of the lake that a source reads."""
        assert source.reference is not None
        table, catalog = source.reference
        in_lake = self.lake.catalog(catalog.name) if isinstance(catalog, Catalog) else catalog
        return self.context.resolve(table, in_lake, source.origin)

    def _target_names(self) -> set[str]:
        sinks = [pipeline.sink.iceberg for pipeline in self._in_lake if pipeline.sink.iceberg is not None]
        return {self.context.resolve(sink.table, sink.catalog, sink.origin).text for sink in sinks}
