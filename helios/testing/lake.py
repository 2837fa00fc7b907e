"""A lake for a test: catalogs with the names of the real ones, in a folder that is thrown away."""

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
from helios.errors import InputError
from helios.model.flow import Pipeline
from helios.model.values import Identifier, caller
from helios.plan.context import Context
from helios.sources.kafka.transport import STAND_INS
from helios.testing.feeds import TableFeed, Topics
from helios.testing.names import sources_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.testing.case import PipelineTest

_NUMBERS = itertools.count(1)


class _Unset(UserDict[str, str]):
    """The environment, in which each variable that a configuration names is set: a test needs none of its secrets."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "unset"

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default)


class Lake:
    """An empty lake. Tables of any catalog are made in a folder of the test; nothing of a real lake is touched.

    Args:
        folder: Where its tables and files are; by default a temporary folder that `close` removes.
        config: The configuration that applies instead of the script's.

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
        self.declared: dict[str, str] = {}
        self.given: list[tuple[TableName, str | None, list[Mapping[str, Any]]]] = []
        self.moment: str | None = None
        self.touched = False
        self.clocks = 0
        self._catalogs: dict[str, Catalog] = {}
        self._spark: SparkSession | None = None
        self._tests: list[PipelineTest] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(asked=kind is not None)

    def close(self, *, asked: bool = False) -> None:
        """Removes what the lake holds of the process, and its folder where that is temporary.

        Args:
            asked: Whether errors of runs that no `expect_error` has asked for are let go.

        Raises:
            HeliosError: A run has failed, and the test did not ask.
        """
        STAND_INS.pop(self.topics.broker, None)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        for test in self._tests if not asked else ():
            test.settle()

    def fresh(self) -> Lake:
        """Another lake, with the same configuration and the same clock."""
        made = Lake(config=self.config)
        made.moment = self.moment
        for name in self._catalogs:
            made.catalog(name)
        return made

    # what it holds

    def test(self, *pipelines: Pipeline | Iterable[Pipeline]) -> PipelineTest:
        """The test of a pipeline, or of several that feed each other, in the order in which they run.

        Raises:
            InputError: There is none, or one reads or writes what a test cannot replace.
        """
        from helios.testing.case import PipelineTest

        flat = [one for given in pipelines for one in ([given] if isinstance(given, Pipeline) else given)]
        made = PipelineTest(self, flat)
        self._tests.append(made)
        return made

    def table(self, name: str, schema: str | None = None, rows: Sequence[Mapping[str, Any]] = ()) -> TableName:
        """Makes a table, such as one that a pipeline reads.

        Args:
            name: "namespace.table", in the default catalog, or "catalog.namespace.table".
            schema: Its columns and Spark SQL types: "id bigint, amount decimal(10,2)"; by default those of the rows.
            rows: Rows to put into it.
        """
        table = self.named(name)
        if schema is not None:
            self.declared[table.text] = schema
        self.given.append((table, schema, list(rows)))
        feed = TableFeed(table, self.declared.get(table.text))
        records = feed.prepare(list(rows)) if rows or schema is None else []
        feed.deliver(records)
        return table

    def rows(self, name: str, branch: str | None = None) -> list[dict[str, Any]]:
        """The rows of a table, in any order.

        Args:
            name: The table.
            branch: A branch of it; by default main.
        """
        return self.rows_of(self.named(name), branch)

    def rows_of(self, table: TableName, branch: str | None = None) -> list[dict[str, Any]]:
        """The rows of a resolved table."""
        held = table.catalog.load(table.within).iceberg
        at = held.refs()[branch].snapshot_id if branch is not None and branch in held.refs() else None
        return list(held.scan(snapshot_id=at).to_arrow().to_pylist())

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Runs Spark SQL over the lake's tables, as another writer would: `DELETE FROM local.shop.orders ...`."""
        self.touched = self.touched or text.split(maxsplit=1)[0].lower() not in ("select", "show", "describe", "with")
        return [row.asDict() for row in self.spark.sql(text).collect()]

    def clock(self, moment: str | datetime) -> None:
        """Sets the time that `current_timestamp()`, `now()` and `current_date()` give from now on.

        Args:
            moment: A datetime or ISO text; without a zone it is of UTC.
        """
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        self.clocks += self.moment != aware.isoformat()
        self.moment = aware.isoformat()
        if self._spark is not None:
            self._set_clock(self._spark)

    # how it stands in for the real one

    @property
    def spark(self) -> SparkSession:
        """The lake's own session, in the JVM of the process."""
        if self._spark is None:
            self._spark = self.start(())
        return self._spark

    def start(self, components: Sequence[str]) -> SparkSession:
        """The lake's session, which starts Spark with jars for these components if none runs."""
        if self._spark is None:
            from helios.testing.spark.runs import declare, new_session

            wanted = ("iceberg", "sqlite", *(one for one in components if one not in ("kafka", "iceberg", "sqlite")))
            spark = new_session(self.config or load(Path.cwd(), env=_Unset(os.environ)), wanted)
            for catalog in self._catalogs.values():
                declare(spark, catalog)
            self._spark = spark
            if self.moment is not None:
                self._set_clock(spark)
        return self._spark

    def _set_clock(self, spark: SparkSession) -> None:
        from helios.testing.spark.runs import set_clock

        set_clock(spark, str(self.moment))

    def catalog(self, name: str) -> Catalog:
        """The lake's catalog of a name."""
        if name not in self._catalogs:
            made = Catalog.local(name, path=self.folder / "catalogs" / name)
            self._catalogs[name] = made
            if self._spark is not None:
                from helios.testing.spark.runs import declare

                declare(self._spark, made)
        return self._catalogs[name]

    def context(self, pipelines: Iterable[Pipeline] = ()) -> Context:
        """The context in which the catalogs of configuration and scripts are the lake's, by their names."""
        pipelines = list(pipelines)
        origin = pipelines[0].origin.file if pipelines else ""
        folder = Path(origin).resolve().parent if os.path.exists(origin) else Path.cwd()
        config = self.config or load(folder, env=_Unset(os.environ))
        names = [*self._catalogs, *config.catalogs, *(name for one in pipelines for name in _catalogs_of(one))]
        catalogs = {name: self.catalog(name) for name in dict.fromkeys([config.default_catalog, *names])}
        return Context(config=replace(config, catalogs=catalogs), catalogs={})

    def sink(self, pipeline: Pipeline) -> Pipeline:
        """A pipeline whose target is in the lake.

        Raises:
            InputError: The target is something that a test cannot replace.
        """
        sink = pipeline.sink
        table = sink.iceberg
        if table is None and not getattr(sink, "lasting", True):
            return pipeline  # it ends with the process
        if table is None:
            raise InputError(
                f"{sink.label()} writes to the outside, which a test does not do.",
                where=sink.origin,
                fix='test the stream before it: `lake.test(stream >> Memory.sink("out"))`.',
            )
        named = self.catalog(table.catalog.name) if isinstance(table.catalog, Catalog) else table.catalog
        here = replace(table, catalog=named, checkpoint_location=None, flush_rows=None, maintenance=None)
        return replace(pipeline, sink=here)

    def named(self, name: str) -> TableName:
        """The table that a name means in the lake."""
        tests = [pipeline for test in self._tests for pipeline in test.pipelines]
        identifier = Identifier.parse(name, caller())
        if len(identifier.parts) > 2:
            self.catalog(identifier.parts[0])
        return self.context(tests).resolve(identifier, None, caller())


def _catalogs_of(pipeline: Pipeline) -> list[str]:
    """The names of the catalogs that a pipeline, or its script, has as values."""
    references = [source.reference for source in sources_of(pipeline)]
    given = [reference[1] for reference in references if reference is not None]
    given.append(getattr(pipeline.sink, "catalog", None))
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == pipeline.origin.file]
    declared = [value for module in modules for value in vars(module).values()]
    return [value.name for value in (*given, *declared) if isinstance(value, Catalog)]
