"""What the UI shows of tables, commits and batches. It is read from the metadata of tables, without a JVM."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.table.commits import Commit
from helios.table.growth import growth
from helios.table.ledger import parse_record, summary_of
from helios.table.plans import KeptPlan
from helios.table.quarantine import COLUMNS, is_quarantine
from helios.table.refs import BACKFILL, LEDGER, REPLAY, translating_errors
from helios.table.snapshots import Table
from helios.ui.facts import TableFacts, TimelineEntry

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

MAX_POINTS = 120
"""The maximum number of points in the plot of a table's growth."""
MAX_SAMPLES = 5
"""The maximum number of rejected rows that the page of a batch shows."""
EXPECT_CALL = "expect("
Summaries: TypeAlias = Mapping[int, Mapping[str, str]]
"""The summaries of snapshots, by their ids."""


def facts_of(table: Table, *, small: int | None) -> TableFacts:
    """The facts of a table; `small` is the number of small files, None if small files were not counted."""
    metadata = table.iceberg.metadata
    head = metadata.current_snapshot()
    totals = summary_of(metadata, head.snapshot_id) if head is not None else {}
    names = sorted(key.removeprefix(LEDGER) for key in metadata.properties if key.startswith(LEDGER))
    return TableFacts(
        name=table.name,
        pipelines=tuple(name for name in names if not name.endswith((REPLAY, BACKFILL))),
        rows=int(totals.get("total-records") or 0),
        files=int(totals.get("total-data-files") or 0),
        bytes=int(totals.get("total-files-size") or 0),
        deletes=int(totals.get("total-delete-files") or 0),
        snapshots=len(metadata.snapshots),
        format=metadata.format_version,
        committed=head.timestamp_ms if head is not None else None,
        changed=len(metadata.schemas) - 1,
        small=small,
        advice=growth(table.iceberg).advice(),
        quarantine=is_quarantine(table),
    )


def summaries_of(table: Table) -> Summaries:
    """The summaries of all snapshots. For a single id, PyIceberg would search all snapshots."""
    snapshots = table.iceberg.metadata.snapshots
    return {
        snapshot.snapshot_id: snapshot.summary.additional_properties if snapshot.summary is not None else {}
        for snapshot in snapshots
    }


def table_page(table: Table, facts: TableFacts, commits: Sequence[Commit], summaries: Summaries) -> dict[str, Any]:
    """The page of a table: facts, growth, schema changes, columns, refs, and the time of the last compaction."""
    metadata = table.iceberg.metadata
    compacted = next((commit for commit in commits if commit.operation == "replace"), None)
    return {
        "facts": facts,
        "growth": _growth_plot(metadata, summaries),
        "schemas": list(_schema_changes(metadata)),
        "columns": [{"name": f.name, "type": str(f.field_type)} for f in table.iceberg.schema().fields],
        "branches": {name: str(id) for name, id in table.branches().items()},
        "tags": {name: str(id) for name, id in table.tags().items()},
        "compacted": _milliseconds(compacted) if compacted is not None else None,
    }


def _growth_plot(metadata: TableMetadata, summaries: Summaries) -> dict[str, list[int]]:
    """The times, rows, files and bytes of up to `MAX_POINTS` states of main, oldest first."""
    log = metadata.snapshot_log
    step = max(1, -(-(len(log) - 1) // (MAX_POINTS - 1)))
    chosen = [*log[:-1:step], *log[-1:]]
    known = [(entry.timestamp_ms, summaries.get(entry.snapshot_id)) for entry in chosen]
    states = [(at, totals) for at, totals in known if totals]
    names = {"rows": "total-records", "files": "total-data-files", "bytes": "total-files-size"}
    totals_by_name = {name: [int(totals.get(key) or 0) for _, totals in states] for name, key in names.items()}
    return {"at": [at for at, _ in states], **totals_by_name}


def _schema_changes(metadata: TableMetadata) -> Iterator[dict[str, Any]]:
    """The changes of a table's columns, newest first, each with the time of the new schema's first commit."""
    first: dict[int, int] = {}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None:
            first.setdefault(snapshot.schema_id, snapshot.timestamp_ms)
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    for before, after in reversed(list(pairwise(schemas))):
        yield {"at": first.get(after.schema_id), "changes": list(_changes(before, after))}


def _changes(before: Schema, after: Schema) -> Iterator[str]:
    old = {field.field_id: field for field in before.fields}
    new = {field.field_id: field for field in after.fields}
    for id, field in new.items():
        old_field = old.get(id)
        if old_field is None:
            yield f"added {field.name} {field.field_type}"
        elif old_field.name != field.name:
            yield f"renamed {old_field.name} to {field.name}"
        elif old_field.field_type != field.field_type:
            yield f"{field.name}: {old_field.field_type} to {field.field_type}"
        elif old_field.required != field.required:
            yield f"{field.name}: {'now required' if field.required else 'may be null now'}"
    yield from (f"dropped {field.name}" for id, field in old.items() if id not in new)


def commit_row(commit: Commit, table: str, summary: Mapping[str, str]) -> dict[str, Any]:
    """A commit as a row in the list of commits; `table` is the name of the table."""
    return {
        "table": table,
        "snapshot": str(commit.snapshot),
        "at": _milliseconds(commit),
        "operation": commit.operation,
        "pipeline": commit.pipeline,
        "batch": commit.batch,
        "added": commit.added,
        "removed": commit.removed,
        "moved": commit.moved,
        "exact": commit.exact,
        "files": int(summary.get("added-data-files") or 0),
        "bytes": int(summary.get("added-files-size") or 0),
    }


def timeline_entry(commit: Commit, table: str, summary: Mapping[str, str]) -> TimelineEntry:
    """A commit as an entry of a lake's timeline. The duration is unknown, since commits do not record durations."""
    fields = commit_row(commit, table, summary)
    return TimelineEntry(
        pipeline=commit.pipeline or "",
        table=table,
        kind="maintained" if commit.operation == "replace" else "batch",
        at=fields["at"],
        batch=commit.batch,
        snapshot=fields["snapshot"],
        rows=commit.added,
        files=fields["files"],
        bytes=fields["bytes"],
        message=f"moved {commit.moved:,} rows into other files" if commit.moved else "",
    )


def batch_page(commit: Commit, table: Table, summary: Mapping[str, str], plan: KeptPlan | None) -> dict[str, Any]:
    """The page of a commit: what the batch read and wrote, and which expectations and audits it had to meet."""
    texts = zip(commit.reads, commit.read_texts, strict=True)
    target = plan.plan.get("target", {}) if plan is not None else {}
    steps = [str(step) for step in (plan.plan.get("steps") or ())] if plan is not None else []
    return {
        **commit_row(commit, table.name, summary),
        "version": commit.version,
        "read": [{"source": entry.source, "text": text} for entry, text in texts],
        "steps": steps if plan is not None else None,
        "expectations": [_expectation(step) for step in steps if step.startswith(EXPECT_CALL)],
        "audits": dict(target.get("audits") or {}),
        "quarantines": list(quarantines(table, commit)),
    }


def _expectation(step: str) -> dict[str, str]:
    """The text of an `expect` step, and the policy for rows that fail.

    Examples:
        >>> _expectation("expect(a=id > 0, on_fail=drop)")
        {'step': 'expect(a=id > 0, on_fail=drop)', 'on_fail': 'drop'}
    """
    return {"step": step, "on_fail": step.rpartition("on_fail=")[2].rstrip(")")}


def quarantines(table: Table, commit: Commit) -> Sequence[str]:
    """The quarantines that may have rows of a commit's pipeline, according to the pipeline's record in the table."""
    key = LEDGER + (commit.pipeline or "").removesuffix(REPLAY).removesuffix(BACKFILL)
    text = table.iceberg.metadata.properties.get(key)
    return parse_record(text, key, table.name).quarantines if text is not None else ()


def rejected_rows(quarantine: Table, commit: Commit, *, samples: bool) -> dict[str, Any]:
    """The rejected rows of a commit in one quarantine: counts by step and reason, and, on request, samples.

    Raises:
        RunError: The quarantine cannot be read.
    """
    from pyiceberg.expressions import And, EqualTo

    counts: Counter[tuple[str, str]] = Counter()
    shown: list[dict[str, Any]] = []
    if commit.batch is None or not is_quarantine(quarantine):
        return {"table": quarantine.name, "groups": [], "rows": []}
    of_batch = And(EqualTo("pipeline", commit.pipeline), EqualTo("batch", commit.batch))  # type: ignore[arg-type, call-arg]
    with translating_errors(quarantine, "reading it"):
        # Batch numbers start again with a new checkpoint, so rows are matched by position too.
        for rows in quarantine.iceberg.scan(of_batch, selected_fields=COLUMNS).to_arrow_batch_reader():
            for reject in rows.to_pylist():
                if _parsed(reject["position"]) != commit.position:
                    continue
                counts[reject["step"] or "", reject["reason"] or ""] += 1
                if samples and len(shown) < MAX_SAMPLES:
                    shown.append({name: reject[name] for name in ("step", "reason", "payload")})
    groups = [{"step": step, "reason": reason, "rows": rows} for (step, reason), rows in counts.most_common()]
    return {"table": quarantine.name, "groups": groups, "rows": shown}


def _parsed(text: str | None) -> Mapping[str, Any] | None:
    try:
        parsed = json.loads(text) if text else None
    except ValueError:
        return None  # another program wrote the text
    return parsed if isinstance(parsed, dict) else None


def _milliseconds(commit: Commit) -> int:
    return round(commit.committed.timestamp() * 1000)
