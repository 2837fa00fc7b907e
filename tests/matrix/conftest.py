"""One suite over catalogs and storages: every promise is a test, and runs once per combination.

`pytest tests/matrix -k "rest and minio"` chooses combinations by catalog, storage or server, and `-k closest` each
catalog with its simplest storage. `--matrix-table FILE` writes the outcome of a full run as a page of the docs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io
from pyspark.sql import SparkSession

from helios import Catalog, Pipeline
from helios.catalog.conf import pyiceberg_properties, warehouse
from helios.model.values import Secret
from helios.spark.checkpoint.small_files import SmallFiles, small_files
from helios.table.snapshots import Table
from tests.matrix import table
from tests.matrix.combinations import BY_NAME, COMBINATIONS, NAME, Combination, Place
from tests.matrix.gaps import GAPS
from tests.services.fixtures import named_skip
from tests.streaming.conftest import World, shared_spark
from tests.suite.promises import PROMISES

__all__ = ["shared_spark"]

FOLDER = Path(__file__).parent


class Lake(World):
    """A combination at work.

    Args:
        spark: The session of all tests.
        folder: For what is local, such as scripts.
        combination: Which one it is.
        place: Where its storage is.
        catalog: Its catalog.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, combination: Combination, place: Place, catalog: Catalog
    ) -> None:
        self.combination, self.place = combination, place
        super().__init__(spark, folder, catalog)

    def sink(self, table: str) -> Any:
        """A sink; where a catalog has no place for checkpoints, they are put beside it, as a user of it would."""
        sink = super().sink(table)
        return sink if warehouse(self.catalog) else sink.checkpoint(str(self.folder / "checkpoints" / table))

    def load(self, name: str) -> Table:
        """A table as it is now, whoever has written it."""
        table = self.catalog.load(name)
        table.iceberg.refresh()
        return table

    def feed(self, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Appends rows by PyIceberg, as somebody else would; makes the table first if there is none."""
        namespace = name.rpartition(".")[0]
        if namespace not in self.catalog.namespaces():
            self.catalog.create_namespace(namespace)
        if not self.catalog.exists(name):
            self.catalog.create_table(name, schema)
        self.load(name).iceberg.append(pa.Table.from_pylist(list(rows), schema=schema))

    def snapshots(self, name: str) -> list[int]:
        """The ids of a table's snapshots, oldest first."""
        return [snapshot.id for snapshot in self.load(name).snapshots()]

    def readers(self, checkpoint: str) -> list[str]:
        """The readers that an expiry must be told of: none, where checkpoints are in the catalog's own warehouse."""
        return [] if warehouse(self.catalog) else [checkpoint]

    def progress(self, pipeline: Pipeline) -> SmallFiles:
        """The files of its checkpoint, wherever that is."""
        return small_files(self.spark, self.plan(pipeline).checkpoint)

    # files beside the tables

    @property
    def storage_uri(self) -> str:
        """A place of the combination's storage that is not below its warehouse."""
        return f"{self.place.warehouse.rpartition('/')[0]}/files"

    def land(self, uri: str, text: str) -> None:
        """Writes a file, whole, by PyIceberg's own client of the storage."""
        with self._io.new_output(uri).create(overwrite=True) as stream:
            stream.write(text.encode())

    def delete(self, uri: str) -> None:
        self._io.delete(uri)

    @property
    def _io(self) -> Any:
        return load_file_io(pyiceberg_properties(self.catalog), self.place.warehouse)

    # `helios run`, in a process of its own

    def declare(self, folder: Path, *spark: str) -> dict[str, str]:
        """Writes a helios.toml for the combination, with lines of its own under [spark].

        Returns:
            The variables that hold its secrets.
        """
        secrets: dict[str, str] = {}

        def settings(pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
            for key, value in pairs:
                if isinstance(value, Secret):
                    secrets[f"MATRIX_{key.upper()}"] = value.reveal()
                    yield f'{key} = "${{MATRIX_{key.upper()}}}"'
                else:
                    yield f"{key} = {str(value).lower()}" if isinstance(value, bool) else f'{key} = "{value}"'

        storage = self.catalog.storage
        lines = [f'default_catalog = "{NAME}"', "[spark]", 'master = "local[2]"', *spark, f"[catalogs.{NAME}]"]
        lines += [f'type = "{self.catalog.type}"', *settings(self.catalog.options)]
        if storage is not None:
            lines += ['storage = "place"', "[storages.place]", f'type = "{storage.type}"', *settings(storage.options)]
        (folder / "helios.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return secrets

    def command(self, folder: Path, script: str, *spark: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a script by `helios run --once`; `declare` says what `spark` is."""
        secrets = self.declare(folder, *spark)
        (folder / "pipeline.py").write_text(script, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"],
            cwd=folder,
            env={**os.environ, **secrets, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def lake(
    request: pytest.FixtureRequest, shared_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    combination = BY_NAME[request.param]
    folder = tmp_path_factory.mktemp(combination.name)
    with ExitStack() as stack:
        with named_skip():
            place = combination.place(stack, folder)
            catalog = combination.make(stack, place)
        yield Lake(shared_spark, folder, combination, place, catalog)


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "lake" in request.fixturenames:
        for query in request.getfixturevalue("lake").spark.streams.active:
            query.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lake" not in metafunc.fixturenames:
        return
    promise = metafunc.function.__name__.removeprefix("test_")
    parameters = []
    for row in COMBINATIONS:
        cause = GAPS.get((row.catalog, row.storage, promise))
        shown = [name for name in (row.catalog, row.storage) if name in PROMISES]
        marks = [pytest.mark.jars(*row.components), pytest.mark.promise(*shown)]
        marks += [] if row.quick else [pytest.mark.slow]
        marks += [pytest.mark.xfail(reason=cause, strict=True)] if cause else []
        parameters.append(pytest.param(row.name, marks=marks, id=row.name))
    metafunc.parametrize("lake", parameters, indirect=True, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "lake" in item.callspec.params:
        combination = BY_NAME[item.callspec.params["lake"]]
        item.extra_keyword_matches.update(combination.keywords)
        item.user_properties.append(("matrix", [combination.name, item.originalname.removeprefix("test_")]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix-table", type=Path, metavar="FILE", help="write the outcome as a page of the docs")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--matrix-table", default=None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_TableWriter(config.getoption("--matrix-table")))


class _TableWriter:
    """Writes the table when the last test has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[tuple[str, str], table.Outcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties).get("matrix")
        if found is None or (report.when != "call" and report.passed):
            return
        cause = getattr(report, "wasxfail", None)
        outcome = report.outcome if cause is None else "gap"
        self.outcomes[found[0], found[1]] = (outcome, cause or "")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self.path.write_text(table.page(self.outcomes), encoding="utf-8")
        terminalreporter.write_line(f"the matrix is in {self.path}")
