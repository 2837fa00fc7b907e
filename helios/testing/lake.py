"""A lake for a test: catalogs with the names of the real ones, in a temporary folder."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.config import Config, load
from helios.errors import InputError, NotFound, near_miss
from helios.model.flow import Pipeline
from helios.model.values import Identifier, caller
from helios.plan.context import Context
from helios.sources.kafka.sink import KafkaSink
from helios.sources.kafka.transport import STAND_INS
from helios.testing.diff import hidden
from helios.testing.feeds import TableFeed
from helios.testing.names import sources_of
from helios.testing.records import Record
from helios.testing.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.testing.case import PipelineTest

__tracebackhide__ = hidden

_NUMBERS = itertools.count(1)


class _EnvironmentWithDefaults(UserDict[str, str]):
    """The environment variables. A missing variable has the value "unset", so that a test needs no secrets."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "unset"

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default)


class Lake:
    """An empty lake. Tables of all catalogs are created in a folder of the test. Real lakes are not touched.

    Args:
        folder: The folder of the tables and files; by default a temporary folder that `close` removes.
        config: The configuration to use instead of the configuration of the script.

    Examples:
        >>> with Lake() as lake:
        ...     lake.table("shop.orders", "id bigint, amount double").text
        'local.shop.orders'
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, config: Config | None = None) -> None:
        self._temporary = folder is None
        self.folder = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="helios-lake-"))
        self.config = config
        self.topics = Topics(f"helios-test-{next(_NUMBERS)}:9092", {})
        self.declared: dict[str, str] = {}  # the schema of each table that `table` declared
        self.created: list[tuple[TableName, str | None, list[Mapping[str, Any]]]] = []  # the calls of `table`
        self.now: str | None = None  # the time that `clock` has set
        self.changed_by_sql = False
        self.clock_changes = 0
        self._catalogs: dict[str, Catalog] = {}
        self._spark: SparkSession | None = None
        self._tests: list[PipelineTest] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(ignore_errors=kind is not None)

    def close(self, *, ignore_errors: bool = False) -> None:
        """Releases the lake's topics, and removes the lake's folder if it is temporary.

        Args:
            ignore_errors: Whether to ignore an error of a run that `expect_error` has not accepted.

        Raises:
            HeliosError: A run has failed, and `expect_error` has not accepted the error.
        """
        STAND_INS.pop(self.topics.broker, None)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        if not ignore_errors:
            for test in self._tests:
                test.settle()

    def fresh(self) -> Lake:
        """A new, empty lake with the same configuration, catalogs and clock."""
        lake = Lake(config=self.config)
        lake.now = self.now
        for name in self._catalogs:
            lake.catalog(name)
        return lake

    # tests and tables

    def test(self, *pipelines: Pipeline | Iterable[Pipeline]) -> PipelineTest:
        """The test of a pipeline, or of several pipelines that feed each other. They run in the given order.

        Raises:
            InputError: There is no pipeline, or a pipeline has a source or target that a test cannot replace.
        """
        from helios.testing.case import PipelineTest

        flat: list[Pipeline] = []
        for argument in pipelines:
            # PipelineTest refuses values that are not pipelines.
            flat += argument if isinstance(argument, Iterable) and not isinstance(argument, Pipeline) else [argument]
        test = PipelineTest(self, flat)
        self._tests.append(test)
        return test

    def table(self, name: str, schema: str | None = None, rows: Sequence[Mapping[str, Any]] = ()) -> TableName:
        """Creates a table, for example a table that a pipeline reads.

        Args:
            name: "namespace.table" in the default catalog, or "catalog.namespace.table".
            schema: The columns and their Spark SQL types, for example "id bigint, amount decimal(10,2)". By default,
                the rows determine the columns.
            rows: The rows of the table.

        Raises:
            InputError: There are neither columns nor rows.
        """
        table = self.resolved(name)
        if schema is None and not rows:
            raise InputError(
                f"lake.table({name!r}) has neither columns nor rows.",
                fix=f'declare its columns: lake.table({name!r}, "id bigint, ...").',
            )
        if schema is not None:
            self.declared[table.text] = schema
        self.created.append((table, schema, list(rows)))
        feed = TableFeed(table, self.declared.get(table.text))
        records = feed.prepare(list(rows)) if rows else []
        feed.deliver(records)
        return table

    def rows(self, name: str, branch: str | None = None) -> list[dict[str, Any]]:
        """The rows of a table, in any order.

        Args:
            name: The table.
            branch: The branch from which the rows are read; by default main.
        """
        return self.rows_of(self.resolved(name), branch)

    def rows_of(self, table: TableName, branch: str | None = None) -> list[dict[str, Any]]:
        """The rows of a table in a branch, or in main if the branch does not exist."""
        iceberg = table.catalog.load(table.name_in_catalog).iceberg
        ref = iceberg.refs().get(branch) if branch is not None else None
        scan = iceberg.scan(snapshot_id=ref.snapshot_id if ref is not None else None)
        return list(scan.to_arrow().to_pylist())

    def records(self, topic: str) -> list[Record]:
        """The records that tests have fed into a topic, and the records that pipelines have written to the topic.

        Raises:
            NotFound: No pipeline of the tests reads or writes the topic.
        """
        if topic not in self.topics.logs:
            raise NotFound(f"topic {topic!r} is not in the test's lake. {near_miss(topic, self.topics.logs)}")
        return [record for partition in self.topics.logs[topic] for record in partition]

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Runs Spark SQL over the lake's tables, as another writer would: `DELETE FROM local.shop.orders ...`."""
        command = text.split(maxsplit=1)[0].lower()
        if command not in ("select", "show", "describe", "with"):
            self.changed_by_sql = True
        return [row.asDict() for row in self.spark.sql(text).collect()]

    def clock(self, moment: str | datetime) -> None:
        """Sets the time that `current_timestamp()`, `now()` and `current_date()` return after this call.

        Args:
            moment: A datetime or ISO text. A time without a zone is in UTC.
        """
        time = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        if utc.isoformat() != self.now:
            self.clock_changes += 1
        self.now = utc.isoformat()
        if self._spark is not None:
            self._set_clock(self._spark)

    # catalogs and the session

    @property
    def spark(self) -> SparkSession:
        """The lake's own session in the JVM of this process."""
        if self._spark is None:
            self._spark = self.start(())
        return self._spark

    def start(self, components: Sequence[str]) -> SparkSession:
        """Returns the lake's session. The first call creates it.

        If this process has no Spark yet, Spark is started with the jars of the components.
        """
        if self._spark is None:
            from helios.testing.spark.runs import declare, new_session

            # Topics have no broker in a test, so Kafka's jars are not needed.
            needed = [name for name in dict.fromkeys(("iceberg", "sqlite", *components)) if name != "kafka"]
            spark = new_session(self.config or load(Path.cwd(), env=_EnvironmentWithDefaults(os.environ)), needed)
            for catalog in self._catalogs.values():
                declare(spark, catalog)
            self._spark = spark
            if self.now is not None:
                self._set_clock(spark)
        return self._spark

    def _set_clock(self, spark: SparkSession) -> None:
        from helios.testing.spark.runs import set_clock

        set_clock(spark, str(self.now))

    def catalog(self, name: str) -> Catalog:
        """The lake's catalog of this name. The first call creates the catalog."""
        if name not in self._catalogs:
            catalog = Catalog.local(name, path=self.folder / "catalogs" / name)
            self._catalogs[name] = catalog
            if self._spark is not None:
                from helios.testing.spark.runs import declare

                declare(self._spark, catalog)
        return self._catalogs[name]

    def context(self, pipelines: Iterable[Pipeline] = ()) -> Context:
        """The context for compiling. The lake's catalogs replace the catalogs of the configuration and the scripts."""
        pipelines = list(pipelines)
        script = pipelines[0].origin.file if pipelines else ""
        folder = Path(script).resolve().parent if os.path.exists(script) else Path.cwd()
        config = self.config or load(folder, env=_EnvironmentWithDefaults(os.environ))
        names = [config.default_catalog, *self._catalogs, *config.catalogs]
        for pipeline in pipelines:
            names += _catalogs_of(pipeline)
        catalogs = {name: self.catalog(name) for name in dict.fromkeys(names)}
        return Context(config=replace(config, catalogs=catalogs), catalogs={})

    def with_target_in_lake(self, pipeline: Pipeline) -> Pipeline:
        """Returns a copy of the pipeline that writes into the lake; the pipeline itself if its target is in memory.

        Raises:
            InputError: A test cannot replace the target.
        """
        sink = pipeline.sink
        table = sink.iceberg
        if table is None and not getattr(sink, "outlives_process", True):
            return pipeline  # the target is in memory
        if isinstance(sink, KafkaSink):
            self.topics.partitions(sink.topic)
            plain = replace(sink, brokers=(self.topics.broker,), login=None, encryption=None, client_settings=())
            return replace(pipeline, sink=replace(plain, checkpoint_location=None))
        if table is None:
            raise InputError(
                f"{sink.label()} writes to another system, which a test cannot replace.",
                where=sink.origin,
                fix='test the stream without this target: `lake.test(stream >> Memory.sink("out"))`.',
            )
        catalog = self.catalog(table.catalog.name) if isinstance(table.catalog, Catalog) else table.catalog
        in_lake = replace(table, catalog=catalog, checkpoint_location=None, flush_rows=None, maintenance=None)
        return replace(pipeline, sink=in_lake)

    def resolved(self, name: str) -> TableName:
        """The full name of a table in the lake."""
        tests = [pipeline for test in self._tests for pipeline in test.pipelines]
        identifier = Identifier.parse(name, caller())
        if len(identifier.parts) > 2:
            self.catalog(identifier.parts[0])
        return self.context(tests).resolve(identifier, None, caller())


def _catalogs_of(pipeline: Pipeline) -> list[str]:
    """The names of the `Catalog` values that a pipeline uses, or that its script assigns to variables."""
    references = [source.reference for source in sources_of(pipeline)]
    used = [reference[1] for reference in references if reference is not None]
    used.append(getattr(pipeline.sink, "catalog", None))
    variables: list[object] = []
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == pipeline.origin.file:
            variables += vars(module).values()
    return [value.name for value in (*used, *variables) if isinstance(value, Catalog)]
