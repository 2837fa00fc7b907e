"""The page of the docs that a full run writes."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence

from helios.environment.coordinates import COMPONENTS, minor, parse
from tests.matrix.combinations import COMBINATIONS
from tests.services import azurite, gcs, minio, nessie, rest

PROMISES: Mapping[str, str] = {
    "create": "namespace and table appear with the first write, partitioned by `day` and `bucket`",
    "append": "exactly once through a `kill -9` of `helios run` between the commit and the checkpoint's log",
    "replay": "a batch that the checkpoint forgot adds no row and no snapshot; the checkpoint is on the storage itself",
    "incremental": "a followed table: each commit once, nothing twice",
    "files": "a followed folder of the storage: quarantined rows, a replaced file, a replay, each file once",
    "time_travel": "`.as_of`, `.at_snapshot` and `.at_ref`",
    "upsert": "the newest row per key, with late rows and remembered deletes",
    "evolution": "a new column and a wider type reach the target",
    "changes": "`.changes_between`, updates paired by key",
    "snapshots": "`Table.snapshots`, `.snapshot_at` and what Helios stamps, without a JVM",
    "tag": "tags and branches, made without a JVM and written by a pipeline",
    "rollback": "`Table.rollback_to`, back and forth, without a JVM; Spark sees it",
    "expire": "`Table.expire` without a JVM; tagged snapshots stay",
    "interchange": "what Spark writes PyIceberg reads, value by value, and the other way round",
}
"""What each test shows, in the order of the columns."""

_MARKS = {"passed": "✓", "failed": "**fails**", "skipped": "not run"}

Outcome = tuple[str, str]
"""passed, failed, skipped or gap, and the cause."""
Outcomes = Mapping[tuple[str, str], Outcome]
"""By combination and promise."""


def page(outcomes: Outcomes) -> str:
    """The page, from the outcome of each promise of each combination that was run."""
    causes: list[str] = []
    rows = [
        _row(row.catalog, _storage(row.storage, row.server), [*_cells(row.name, outcomes, causes)])
        for row in COMBINATIONS
    ]
    lines = [
        "# Catalogs and storages",
        "",
        "Every promise on every catalog and storage, against real servers on one machine: the outcomes of",
        "`tests/matrix`, which `make matrix` runs and writes down again. A number stands for a gap, described below.",
        "",
        _row("catalog", "storage", [name.replace("_", " ") for name in PROMISES]),
        _row("---", "---", [":-:"] * len(PROMISES)),
        *rows,
        "",
        *(f"{number}. {cause}" for number, cause in enumerate(causes, 1)),
        "",
        "| column | promise |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {about} |" for name, about in PROMISES.items()),
        "",
        f"Spark {_version('pyspark')}, Iceberg {_iceberg()}, PyIceberg {_version('pyiceberg')}. Servers:",
        "",
        *(f"- {name}: {what}" for name, what in _servers()),
    ]
    return "\n".join(lines) + "\n"


def _row(catalog: str, storage: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([catalog, storage, *cells])} |"


def _storage(kind: str, server: str) -> str:
    return kind if server == "folder" else f"{kind} ({server})"


def _cells(name: str, outcomes: Outcomes, causes: list[str]) -> Iterator[str]:
    for promise in PROMISES:
        outcome, cause = outcomes.get((name, promise), ("skipped", ""))
        if outcome != "gap":
            yield _MARKS[outcome]
            continue
        if cause not in causes:
            causes.append(cause)
        yield f"[{causes.index(cause) + 1}]"


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _iceberg() -> str:
    return parse(COMPONENTS[minor(_version("pyspark"))]["iceberg"][0]).version


def _servers() -> Iterator[tuple[str, str]]:
    yield "s3 (minio)", f"MinIO {minio.PROGRAM.version}"
    yield "adls (azurite)", f"Azurite {azurite.PACKAGE.version}"
    yield "gcs (fake-gcs)", f"fake-gcs-server {gcs.PROGRAM.version}"
    yield "s3 (moto) and Glue", f"moto {_version('moto')}"
    yield "REST", f"the server of Iceberg's own tests {rest.ICEBERG}, over SQLite"
    yield "Hive", "the Metastore 2.3.10 that is inside pyspark, over Derby"
    [[runner]] = nessie.RUNNER.sets
    yield "Nessie", f"Nessie {parse(runner).version}, by its own protocol"
