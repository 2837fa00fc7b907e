"""What the tests of outages share: a REST catalog behind a proxy with faults, and pipelines over it in one session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helios import Catalog, Iceberg, Pipeline
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, Plan, compile_pipelines
from helios.spark.run.events import Event
from helios.spark.run.run import PipelineRun
from helios.spark.session import session
from tests.services.fixtures import named_skip
from tests.services.proxy import FaultProxy
from tests.services.rest import Rest
from tests.streaming.conftest import shared_spark

__all__ = ["shared_spark"]

ROW = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="session")
def rest() -> Iterator[Rest]:
    """A REST catalog of the session's own; a test that stops it starts it again."""
    server = Rest()
    with named_skip():
        server.start()
    yield server
    server.close()


_NUMBERS = count()


class Scene:
    """A namespace of its own in the catalog, a pipeline's way to it through a proxy, and one past it."""

    def __init__(self, spark: SparkSession, server: Rest, proxy: FaultProxy, folder: Path) -> None:
        self.server = server
        self.proxy = proxy
        self.folder = folder
        self.namespace = f"n{next(_NUMBERS)}"
        self.direct = Catalog.rest("prod", uri=server.uri, warehouse=server.warehouse)
        self.spark = spark
        self.events: list[Event] = []
        self._told = threading.Condition()
        self.direct.create_namespace(self.namespace)
        self.through(proxy.uri)

    def through(self, *uris: str, credential: str | None = None, **properties: str) -> None:
        """Lets pipelines reach the catalog by these addresses."""
        given = {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
        uri = uris[0] if len(uris) == 1 else list(uris)
        self.catalog = Catalog.rest(
            "prod", uri=uri, warehouse=self.server.warehouse, credential=credential, properties=given
        )

    def named(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def source(self, table: str) -> Any:
        return Iceberg.source(self.named(table), catalog=self.catalog)

    def sink(self, table: str) -> Any:
        return Iceberg.sink(self.named(table), catalog=self.catalog).checkpoint(str(self.folder / "checkpoint"))

    def plan(self, pipeline: Pipeline) -> Plan:
        context = Context(config=load(self.folder), catalogs={"prod": self.catalog})
        return require_runnable(*compile_pipelines([pipeline], context, lenient=True))[0]

    def start(self, pipeline: Pipeline, plan: Plan | None = None, **options: Any) -> PipelineRun:
        plan = plan or self.plan(pipeline)
        spark = self.spark.newSession()
        session.declare_catalogs(spark, [plan])
        return PipelineRun(plan, spark, emit=self._emit, **options).start()

    def run(self, pipeline: Pipeline, **options: Any) -> PipelineRun:
        """Runs a pipeline until it has drained its sources."""
        run = self.start(pipeline, once=True, **options)
        assert run.await_termination(120)
        return run

    def _emit(self, event: Event) -> None:
        with self._told:
            self.events.append(event)
            self._told.notify_all()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def wait_for(self, kind: str, times: int = 1, matching: str = "", after: int = 0, seconds: float = 90) -> Event:
        """The n-th event of a kind, whose message has a text."""

        def found() -> list[Event]:
            return [e for e in self.events[after:] if e.kind == kind and matching in e.message]

        with self._told:
            self._told.wait_for(lambda: len(found()) >= times or "failed" in self.kinds(), seconds)
            assert len(found()) >= times, f"no {kind!r} number {times} {matching!r} within {seconds} s: {self.events}"
            return found()[times - 1]

    # past the proxy

    def fill(self, table: str, rows: Sequence[tuple[int, int]]) -> None:
        """Appends rows by hand."""
        data = pa.Table.from_pylist([dict(zip(ROW.names, row, strict=True)) for row in rows], schema=ROW)
        if not self.direct.exists(self.named(table)):
            self.direct.create_table(self.named(table), ROW)
        self.iceberg(table).append(data)

    def iceberg(self, table: str) -> Any:
        """PyIceberg's table as it is now."""
        found = self.direct.load(self.named(table)).iceberg
        found.refresh()
        return found

    def rows(self, table: str, branch: str | None = None) -> Counter[tuple[Any, ...]]:
        """The rows as a multiset."""
        found = self.iceberg(table)
        snapshot = found.metadata.snapshot_by_name(branch).snapshot_id if branch else None
        arrow = found.scan(snapshot_id=snapshot, selected_fields=tuple(ROW.names)).to_arrow()
        return Counter(zip(*(arrow[name].to_pylist() for name in ROW.names), strict=True))

    def stamps(self, table: str) -> list[int]:
        """The batches that snapshots of a table are stamped with, ascending."""
        found = [snapshot.summary for snapshot in self.iceberg(table).snapshots()]
        return sorted(int(s["helios.batch"]) for s in found if s is not None and s["helios.batch"] is not None)


@pytest.fixture
def scene(shared_spark: SparkSession, rest: Rest, tmp_path: Path) -> Iterator[Scene]:
    with FaultProxy(rest.uri) as proxy:
        yield Scene(shared_spark, rest, proxy, tmp_path)
