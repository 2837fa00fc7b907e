"""The promises of Helios, by the sections of docs/promises.md, and the tests that show each.

A test or its file names what it shows: `pytestmark = pytest.mark.promise("upsert")`. `make promises` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Promise:
    """What Helios promises.

    Attributes:
        says: The promise.
        served: Only a real server can show it, so that no test of `make test` does.
    """

    says: str
    served: bool = False


SECTIONS: dict[str, dict[str, Promise]] = {
    "Composition": {
        "compose": Promise("`>>` gives new values, and a wrong composition fails where it is written"),
        "identity": Promise("a pipeline is its name, or its target and branch; `was=` moves its ledger once"),
        "scripts": Promise("pipelines are found in a script, which is plain values; `param` reads `--set`"),
        "preview": Promise("`schema()` and `preview(n)` show what a stream carries"),
        "several": Promise("fan-out, fan-in, and all pipelines of a script at once: one failure leaves the others"),
        "no-jvm": Promise("declaring, checking and planning never import pyspark"),
    },
    "Sources": {
        "start": Promise("a followed table begins where `start` says, once, and is followed from there"),
        "bounds": Promise("`max_rows` and `max_files` bound a batch by whole files, the first state too"),
        "time-travel": Promise("`as_of`, `at_snapshot`, `at_ref` and `between` read what was there"),
        "changes": Promise("change reads are complete: inserts, updates and deletes of each commit"),
        "views": Promise("what follows changes equals a recompute"),
        "pushdown": Promise(
            "predicates and columns are pushed: files that cannot match are not opened, no row is lost"
        ),
        "overwrites": Promise("overwrites and deletes stop an incremental read, or are skipped"),
        "expired": Promise("expired or rolled back history of a source is an error, or is proven and started over"),
        "bad-sources": Promise("a damaged or missing file, snapshot or point of a source is named"),
        "files": Promise("each file of a folder is read once, by its own columns and types"),
        "bad-rows": Promise("a line is a row or a bad row with its text: fail, quarantine, drop or null"),
        "bad-files": Promise("files that are damaged, missing or replaced are named, set aside or skipped"),
        "where-from": Promise("rows keep where and when they came from, where it is asked for"),
        "accounts": Promise("every row of a file is in the target, the quarantine, or a count"),
        "kafka": Promise("each record of a topic is in the table once", served=True),
        "kafka-values": Promise("values of records parse as declared, or are set aside with their bytes", served=True),
        "cdc": Promise("changes of a database give its table, in the order of its log", served=True),
        "mirror": Promise(
            "the tables of a database are mirrored, each with its schema, or all in one commit", served=True
        ),
        "webhook": Promise("a delivery that was accepted is in the table once"),
        "memory": Promise("rows of Python are a source"),
        "own-source": Promise("others can add a source"),
    },
    "Transforms": {
        "steps": Promise("each declared step gives what it says, in batches and in streams"),
        "typing": Promise("schemas are known before a run, and wrong expressions are refused with their line"),
        "joins": Promise("a joined table is read again by each batch and pinned for its replay"),
        "joins-as-of": Promise("a table is joined as it was at each row's time"),
        "stateful": Promise("windows, sessions, streaming joins and aggregates equal a batch over the same rows"),
        "dedupe": Promise("`dedupe(within=)` does not depend on how rows are cut into batches"),
        "late": Promise("rows that a watermark drops are counted and told, or set aside"),
        "expect": Promise("an expectation sees every row: fail, drop or quarantine"),
        "engine": Promise("the columnar engine gives Spark's rows to the bit, or leaves the batch to Spark"),
    },
    "Sinks": {
        "append": Promise("append: every row once, and the table as declared"),
        "overwrite": Promise("overwrite: the table, a filter, or the partitions; never rows that it has not seen"),
        "upsert": Promise("upsert: the newest row of each key, deletes remembered"),
        "history": Promise("upsert with history keeps versions"),
        "delete": Promise("delete: every row of a key that arrives"),
        "merge-sql": Promise("the user's own MERGE is idempotent"),
        "reach": Promise("an upsert and a delete open only the files of their keys"),
        "layout": Promise("partitions, properties, codecs and file sizes are those declared, or refused before a run"),
        "evolve": Promise("columns follow the stream, and nothing is dropped silently"),
        "branch": Promise("rows of a branch leave main untouched"),
        "publish": Promise("a published branch is in main once, and its pipelines go on behind it"),
        "audit": Promise("main shows only batches whose audit passed"),
        "route": Promise("one table per value, each batch once in each"),
        "backfill": Promise("history is repaired beside the running pipeline: each row once, other rows untouched"),
        "quarantine": Promise("rejected rows are set aside once, and come back once"),
        "retry": Promise("a conflict is tried four times in all"),
        "maintain": Promise("upkeep between batches or beside a writer loses nothing that a reader needs"),
        "outputs": Promise("console and memory sinks"),
        "kafka-sink": Promise("rows to a topic, at least once", served=True),
    },
    "Catalogs, storages, configuration": {
        "local": Promise("the embedded catalog, which others read too"),
        "rest": Promise("REST catalogs", served=True),
        "replicas": Promise("a run continues at the next replica, never at one that shows less", served=True),
        "hive": Promise("Hive", served=True),
        "nessie": Promise("Nessie", served=True),
        "glue": Promise("Glue", served=True),
        "s3": Promise("S3", served=True),
        "adls": Promise("ADLS", served=True),
        "gcs": Promise("Google Cloud Storage", served=True),
        "configuration": Promise("names, profiles and variables of helios.toml, and what is wrong in it"),
        "operations": Promise("catalog operations in Python without a JVM"),
        "jars": Promise("jars are fetched once, whole, and checked"),
    },
    "Exactly once": {
        "replay": Promise("a replayed batch adds nothing, also after expiry and compaction"),
        "failures": Promise("every write mode through a driver that dies around its commit"),
        "kills": Promise("`kill -9` of a run loses no row and doubles none"),
        "unknown-outcome": Promise("a commit of unknown outcome is looked up, never blindly repeated"),
        "drivers": Promise("a second driver is refused, a stale one is fenced"),
        "rollback": Promise("a target that was rolled back, replaced or dropped stops the run at its start"),
        "checkpoints": Promise("a lost, restored, damaged or foreign checkpoint is refused, with the remedy"),
        "again": Promise("a batch pipeline appends identical inputs once, and is refused changed steps"),
        "changed-steps": Promise("changed steps: kept, refused, `--new-checkpoint`, `--full-refresh`"),
        "others": Promise("other writers' commits coexist, or the batch is refused"),
        "bad-input": Promise("rows that a mode cannot take are a clear error, and the table stays as it was"),
        "outage": Promise("a service that is away is waited for, and each row lands once", served=True),
        "gateways": Promise("whatever a catalog answers around a commit, each row lands once", served=True),
        "sessions": Promise("a session that is passed in is cloned, never altered"),
        "formats": Promise("what an older commit has written is gone on from"),
    },
    "Command line": {
        "commands": Promise("init, check, plan, graph, run, tables, schema, snapshots, status and their `--json`"),
        "words": Promise("errors say what, where and how to fix it"),
        "signals": Promise("Ctrl-C and SIGTERM stop after the running batch, a second one at once"),
        "doctor": Promise("the doctor names what is missing", served=False),
        "doctor-servers": Promise("bad input of real services is one message with its fix", served=True),
        "page": Promise("the live page shows what runs and lakes have, to whom it may, and writes nothing"),
        "documents": Promise("the documents' examples run, and they name what there is"),
        "package": Promise("sdist and wheel install into an empty environment, and say who made them for what"),
    },
    "Tests of pipelines": {
        "testing": Promise("a pipeline runs over the rows of a test, in a lake that is thrown away"),
        "rehearsals": Promise("a rehearsal says what a changed script makes of past commits, and writes nothing"),
        "invariant": Promise("what depends on batches, order or chance is caught, and a right pipeline is not"),
    },
    "Snapshots, metrics, security, scale": {
        "kept-plans": Promise("each commit tells what it read, by which steps, and by which version"),
        "why": Promise("a row tells its commit, what that read, and what became of its key; what has expired is said"),
        "snapshots": Promise("snapshots, tags, branches, rollback and expiry"),
        "diff": Promise("two states differ by exactly the rows that a comparison of all rows finds"),
        "metrics": Promise("the figures of a run, and the endpoint of Prometheus"),
        "long-runs": Promise("a batch that has ended keeps none of the JVM's objects"),
        "secrets": Promise("a secret is nowhere to be read", served=True),
        "identifiers": Promise("names of tables, columns and paths are validated and quoted"),
        "cluster": Promise("the same script on a standalone cluster, through killed workers and drivers", served=True),
        "readers": Promise("PyIceberg, DuckDB and Polars read what Helios writes"),
        "benchmarks": Promise("every contender of every benchmark writes the same rows"),
        "suite": Promise("the runs of the tests share none, are all of them, and each promise has its tests"),
    },
}

PROMISES = {name: promise for section in SECTIONS.values() for name, promise in section.items()}

LATER = (
    "`explain`, declarations in YAML",
    "OpenLineage and OpenTelemetry",
)
"""What is planned and not built: no test shows it."""


def shown(item: pytest.Item) -> set[str]:
    """The promises that a test shows.

    Raises:
        pytest.UsageError: It names one that is not there.
    """
    names = {str(name) for marked in item.iter_markers("promise") for name in marked.args}
    if unknown := names - PROMISES.keys():
        raise pytest.UsageError(
            f"{item.nodeid} shows {', '.join(sorted(unknown))}, which tests/suite/promises.py lacks"
        )
    return names


def counted(items: Iterable[pytest.Item]) -> dict[str, dict[str, list[str]]]:
    """For each promise the tests that show it, by run: `test`, `landing` (without those of `test`), `test-all`."""
    found: dict[str, dict[str, list[str]]] = {name: {"test": [], "landing": [], "test-all": []} for name in PROMISES}
    for item in items:
        if run := run_of(item):
            for name in shown(item):
                found[name][run].append(item.nodeid)
    return found


def run_of(item: pytest.Item) -> str | None:
    """The first of the runs that has a test; none has a slow one."""
    runs = {"short": "test", "landing": "landing", "slow": None}
    return next((run for mark, run in runs.items() if item.get_closest_marker(mark)), "test-all")


def table(items: Sequence[pytest.Item]) -> list[str]:
    """The promises and how many tests of each run show them, as lines of Markdown."""
    found = counted(items)
    lines = ["| promise | `make test` | landing check | `make test-all` |", "|---|---|---|---|"]
    for section, promises in SECTIONS.items():
        lines.append(f"| **{section}** | | | |")
        for name, promise in promises.items():
            test, landing, every = (len(found[name][run]) for run in ("test", "landing", "test-all"))
            lines.append(f"| {promise.says} (`{name}`) | {test or '-'} | {test + landing} | {test + landing + every} |")
    return [*lines, "", "Not built yet:", "", *(f"- {says}" for says in LATER)]
