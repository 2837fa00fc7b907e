"""Reads rejected rows of quarantine tables, and discards audited batches; without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from helios.errors import InputError, LedgerError, NotFound, near_miss
from helios.model.retry import COMMIT_TRIES
from helios.model.values import caller
from helios.table.ledger import AUDIT, Record, Staged, audit_heads, records, staged, summary_of
from helios.table.refs import LEDGER, MAIN, refresh, refuse_unwritable, translating_errors
from helios.table.snapshots import Table

COLUMNS = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
"""The columns of a quarantine table, which `helios.spark.sinks.quarantine` writes."""

TAG = "helios_quarantine_"
"""The prefix of tags: `helios_quarantine_<pipeline>_<batch>` names an audited batch that was discarded."""


def is_quarantine(table: Table) -> bool:
    """True if a table has the columns of a quarantine."""
    return set(COLUMNS) <= set(table.iceberg.schema().column_names)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one pipeline that one step rejected for one reason.

    Attributes:
        step: The text of the step, or the option of the source, that rejected the rows; empty for an invalid key or
            route.
        batches: The numbers of the batches with these rows, ascending.
        newest: The time at which the last of the rows was rejected.
    """

    pipeline: str
    step: str
    reason: str
    rows: int
    batches: tuple[int, ...]
    newest: datetime


@dataclass(frozen=True, kw_only=True)
class DiscardedBatch:
    """An audited batch that was discarded.

    Attributes:
        tag: The tag under which the batch stays readable.
        rows: The number of rows that it added; 0 if `again`.
        quarantined: The number of its rejected rows that were deleted from the pipeline's quarantine.
        again: Whether an earlier call has already discarded the batch.
    """

    pipeline: str
    batch: int
    tag: str
    snapshot: int
    rows: int
    quarantined: int = 0
    again: bool = False


# rows


def groups(table: Table) -> list[Group]:
    """Groups the rows of a quarantine table by pipeline, step and reason. The newest groups come first.

    Raises:
        InputError: The table is not a quarantine.
        RunError: The table's files cannot be read.
    """
    _require_quarantine(table)
    keys = ["pipeline", "step", "reason"]
    with translating_errors(table, "reading it"):
        rejected = table.iceberg.scan(selected_fields=(*keys, "batch", "at")).to_arrow()
    counted = rejected.group_by(keys).aggregate([([], "count_all"), ("batch", "distinct"), ("at", "max")])
    unsorted = [
        Group(
            pipeline=row["pipeline"],
            step=row["step"],
            reason=row["reason"],
            rows=row["count_all"],
            batches=tuple(sorted(batch for batch in row["batch_distinct"] if batch is not None)),
            newest=row["at_max"],
        )
        for row in counted.to_pylist()
    ]
    return sorted(unsorted, key=lambda group: group.newest, reverse=True)


def rows(table: Table, count: int) -> list[dict[str, Any]]:
    """Reads the newest rejected rows, with payload and position as parsed values.

    Raises:
        InputError: The table is not a quarantine.
        RunError: The table's files cannot be read.
    """
    _require_quarantine(table)
    newest = sorted(_scan(table, COLUMNS), key=lambda row: row["at"], reverse=True)[:count]
    return [{**row, "payload": _parsed(row["payload"]), "position": _parsed(row["position"])} for row in newest]


def matching_groups(table: Table, pipeline: str | None, step: str | None, reason: str | None) -> list[Group]:
    """The groups with this pipeline, and with these texts in their step and reason; None stands for all.

    Raises:
        InputError: The table is not a quarantine.
        NotFound: The table has rows of other pipelines only.
    """
    rejected = groups(table)
    names = sorted({group.pipeline for group in rejected})
    if pipeline is not None and rejected and pipeline not in names:
        raise NotFound(f"{table.name} has no rows of {pipeline}. {near_miss(pipeline, names)}", where=caller())
    return [
        group
        for group in rejected
        if pipeline in (None, group.pipeline) and (step or "") in group.step and (reason or "") in group.reason
    ]


def delete_groups(table: Table, cleared: Iterable[Group]) -> int:
    """Deletes the rows of groups, which the user has repaired elsewhere, from a quarantine; returns their number.

    Older snapshots of the quarantine have the rows until these snapshots expire.

    Raises:
        EngineNeeded: PyIceberg cannot write the quarantine's metadata.
        RunError: The quarantine was changed meanwhile, or the catalog cannot be reached; nothing was deleted.
    """
    from pyiceberg.expressions import And, EqualTo, Or

    groups = list(cleared)
    if not groups:
        return 0
    refuse_unwritable(table, "delete the rows with Spark.")
    columns = ("pipeline", "step", "reason")
    filters = [And(*(EqualTo(name, getattr(group, name)) for name in columns)) for group in groups]  # type: ignore[arg-type, call-arg]
    with translating_errors(table, "clearing it"):
        table.iceberg.delete(Or(*filters) if len(filters) > 1 else filters[0])
    return sum(group.rows for group in groups)


def _require_quarantine(table: Table) -> None:
    missing = sorted(set(COLUMNS) - set(table.iceberg.schema().column_names))
    if missing:
        raise InputError(
            f"{table.name} is not a quarantine table: it lacks {', '.join(missing)}.",
            where=caller(),
            fix="give the table that .quarantine(table) names; to discard an audited batch, add --batch.",
        )


def _scan(table: Table, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with translating_errors(table, "reading it"):
        for batch in table.iceberg.scan(selected_fields=columns).to_arrow_batch_reader():
            yield from batch.to_pylist()


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text  # another program wrote the text


def shown_time(moment: datetime) -> str:
    """A time as commands show it."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# audited batches


def discard_batch(table: Table, batch: int, pipeline: str | None = None) -> DiscardedBatch:
    """Discards a batch that failed its audit: the pipeline continues with the next batch.

    One commit tags the batch's snapshot, removes its branch, and records the batch as done. The commit requires that
    neither main nor the branch has moved since they were read. A driver that is about to publish the batch then finds
    no branch. If a driver has staged the batch again, this commit fails.

    Args:
        table: The target of the pipeline.
        pipeline: The pipeline; optional when only one has a waiting batch.

    Raises:
        NotFound: No such batch waits.
        InputError: The batch is published, or another batch waits.
        LedgerError: The record is lost, damaged, or of another checkpoint.
        EngineNeeded: PyIceberg cannot write the table's metadata.
        RunError: The table was changed during each of several tries, or the catalog cannot be reached.
    """
    from pyiceberg.exceptions import CommitFailedException

    tries = COMMIT_TRIES
    while True:
        refresh(table)
        discarded, record = plan_discard(table, batch, pipeline)
        if discarded.again:
            return discarded
        refuse_unwritable(table, f"run `helios quarantine {table.name} --batch {batch}`, which then uses Spark.")
        tries -= 1
        with translating_errors(table, f"discarding batch {batch}"):
            try:
                _commit(table, discarded, record)
            except CommitFailedException:
                if not tries:
                    raise
                continue
        return discarded


def clear_discarded(target: Table, discarded: DiscardedBatch, quarantine: Table) -> int:
    """Deletes the rows of a discarded batch from the quarantine of its pipeline; returns their number.

    The rows stay readable under a tag of the quarantine that has the same name as the batch's tag in the target. A
    second call finds no rows.

    Args:
        quarantine: A table; nothing is done unless it is the quarantine of the pipeline.

    Raises:
        EngineNeeded: PyIceberg cannot write the quarantine's metadata.
        RunError: The quarantine was changed meanwhile, or the catalog cannot be reached.
    """
    from pyiceberg.expressions import And, EqualTo, In

    refresh(quarantine)
    of_pipeline = LEDGER + discarded.pipeline in quarantine.iceberg.properties
    if not of_pipeline or not is_quarantine(quarantine):
        return 0
    position = json.loads(summary_of(target.iceberg.metadata, discarded.snapshot).get("helios.position", "null"))
    own = EqualTo("pipeline", discarded.pipeline)  # type: ignore[arg-type, call-arg]
    with translating_errors(quarantine, "reading it"):
        positions = quarantine.iceberg.scan(own, selected_fields=("position",)).to_arrow()["position"].to_pylist()
    # Rows are matched by position: after a restart of the pipeline, batch numbers begin at 0 again.
    texts = {text for text in positions if position is not None and _parsed(text) == position}
    if not texts:
        return 0
    refuse_unwritable(quarantine, f"delete the rows of batch {discarded.batch} of {discarded.pipeline} with Spark.")
    current = quarantine.iceberg.current_snapshot()
    with translating_errors(quarantine, f"deleting the rows of batch {discarded.batch}"):
        if discarded.tag not in quarantine.iceberg.refs() and current is not None:
            quarantine.iceberg.manage_snapshots().create_tag(current.snapshot_id, discarded.tag).commit()
        quarantine.iceberg.delete(And(own, In("position", texts)))  # type: ignore[arg-type, call-arg]
    return sum(1 for text in positions if text in texts)


def plan_discard(table: Table, batch: int, pipeline: str | None) -> tuple[DiscardedBatch, Record]:
    """Returns the effect of discarding a batch, and the pipeline's record afterwards. Writes nothing.

    Raises:
        NotFound: No such batch waits.
        InputError: The batch is published, or another batch waits.
        LedgerError: The record is lost, damaged, or of another checkpoint.
    """
    metadata = table.iceberg.metadata
    known = records(metadata.properties, table.name)
    name = pipeline or _waiting_pipeline(table, batch)
    record, waiting, tag = known.get(name), staged(metadata, name), f"{TAG}{name}_{batch}"
    is_done = record is not None and record.batch >= batch
    tagged = metadata.refs.get(tag)
    if record is not None and is_done:
        # A batch of an earlier checkpoint may have had the same number.
        for ref, at in metadata.refs.items():
            own = summary_of(metadata, at.snapshot_id).get("helios.checkpoint") == record.checkpoint
            if own and ref in (tag, f"{tag}_{at.snapshot_id}"):
                done = DiscardedBatch(pipeline=name, batch=batch, tag=ref, snapshot=at.snapshot_id, rows=0, again=True)
                return done, record
    if waiting is None or waiting.batch != batch or is_done:
        raise _not_waiting_error(table, name, batch, waiting, record)
    if record is None:
        raise LedgerError(
            f"{table.name} lacks the record {LEDGER}{name}, so the pipeline's position is unknown; nothing was done.",
            fix=f"restore the table property {LEDGER}{name} from an older metadata file.",
        )
    if record.checkpoint != waiting.checkpoint:
        raise LedgerError(
            f"batch {batch} of {name} in {table.name} was staged from the checkpoint {waiting.checkpoint}, and the "
            f"pipeline now runs from the checkpoint {record.checkpoint}; nothing was done.",
            fix="run the pipeline again, which stages its own batch.",
        )
    # The record keeps the snapshot of the last batch in main, so that a rollback of the target is still detected.
    changed = replace(record, batch=batch, position=waiting.position, steps=waiting.steps, aside=True)
    # A new checkpoint counts from 0 again, so a tag of an earlier checkpoint may have the same number.
    tag = f"{tag}_{waiting.snapshot}" if tagged is not None else tag
    return DiscardedBatch(pipeline=name, batch=batch, tag=tag, snapshot=waiting.snapshot, rows=waiting.rows), changed


def _waiting_pipeline(table: Table, batch: int) -> str:
    """Finds the pipeline of a waiting batch, for a caller that gives only the batch's number."""
    metadata = table.iceberg.metadata
    waits = {name: waiting.batch for name in audit_heads(metadata) if (waiting := staged(metadata, name)) is not None}
    tags = [ref.removeprefix(TAG).rpartition("_") for ref in metadata.refs if ref.startswith(TAG)]
    # The first of these lists that is not empty: from batches with this number to any audit branch.
    names = (
        [name for name, number in waits.items() if number == batch]
        or [name for name, _, number in tags if number == str(batch)]
        or list(waits)
        or list(audit_heads(metadata))
    )
    if not names:
        raise NotFound(
            f"no batch waits in {table.name}: it has no branch {AUDIT}<pipeline>.",
            where=caller(),
            fix="give the target of a pipeline with .audit({...}).publish() whose run has failed.",
        )
    if len(names) > 1:
        raise InputError(
            f"several audited pipelines write {table.name}: {', '.join(sorted(names))}.",
            where=caller(),
            fix=f"say which one is meant: --pipeline {sorted(names)[0]}.",
        )
    return names[0]


def _not_waiting_error(
    table: Table, name: str, batch: int, waiting: Staged | None, record: Record | None
) -> InputError:
    metadata = table.iceberg.metadata
    if waiting is not None and waiting.batch != batch:
        return InputError(
            f"the batch of {name} that waits in {table.name} is {waiting.batch}, not {batch}; nothing was done.",
            where=caller(),
            fix=f"write --batch {waiting.batch} if that one is meant.",
        )
    if record is not None and record.batch >= batch:
        done = "is published, or was discarded" if record.aside else "is published already"
        return InputError(
            f"batch {batch} of {name} {done}: the pipeline is at batch {record.batch}; nothing was done.",
            where=caller(),
            fix=f"to take rows out of main, see `helios rollback {table.name}`.",
        )
    branches = audit_heads(metadata)
    if name in branches:
        return NotFound(
            f"no batch of {name} waits in {table.name}: the branch {AUDIT}{name} has no unpublished batch.",
            where=caller(),
            fix="run the pipeline; a batch that does not pass its audit stays there.",
        )
    return NotFound(
        f"no batch of {name} waits in {table.name}: there is no branch {AUDIT}{name}. {near_miss(name, branches)}",
        where=caller(),
    )


def _commit(table: Table, discarded: DiscardedBatch, record: Record) -> None:
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    metadata, branch = table.iceberg.metadata, AUDIT + discarded.pipeline
    main = metadata.refs.get(MAIN)
    required: Mapping[str, int | None] = {
        branch: discarded.snapshot,
        MAIN: main.snapshot_id if main is not None else None,
        discarded.tag: None,
    }
    expected = (AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": id}) for ref, id in required.items())
    tag = {"ref-name": discarded.tag, "type": "tag", "snapshot-id": discarded.snapshot}
    table.iceberg.catalog.commit_table(
        table.iceberg,
        (AssertTableUUID(uuid=metadata.table_uuid), *expected),
        (
            SetSnapshotRefUpdate.model_validate(tag),
            RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),
            SetPropertiesUpdate(updates={LEDGER + discarded.pipeline: record.as_json()}),
        ),
    )
    table.iceberg.refresh()
