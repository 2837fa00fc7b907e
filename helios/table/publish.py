"""Publishes a branch: moves main to its head, so that main's pipelines continue after the last batch on the branch.

One commit moves main and sets the records of its pipelines. It fails if main, the branch or one of the records has
changed since they were read.

A pipeline with a name of its own keeps its record, which becomes a record of main. A pipeline that is named after its
table and branch keeps its record for later batches on the branch, and main's pipeline gets a copy of it. At its next
start, main's pipeline creates a checkpoint at the position of that copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from helios.errors import InputError, NotFound, near_miss
from helios.model.values import caller
from helios.table.ancestry import Landing, Presence
from helios.table.ledger import AUDIT, Record, have_common_source, main_had, records, summary_of
from helios.table.presence import presence_in
from helios.table.refs import LEDGER, MAIN, OWN_SUFFIXES, ancestors, refresh, refuse_unwritable, translating_errors

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement

    from helios.table.snapshots import Table


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The change that publishes a branch.

    Attributes:
        snapshot: The head of the branch, the next snapshot of main.
        former: The snapshot of main until now; None for an empty main.
        moves_main: Whether main moves; otherwise main has all commits of the branch already.
        commits: The number of retained commits that main gets.
        records: The properties that are set: the records of main's pipelines.
        known: The ledger properties from which this change was planned, by name; None for a missing one.
        pipelines: The pipelines that continue in main after the branch.
        stateful: The branch's pipelines with state in their checkpoints. They continue in main only under a new name.
    """

    branch: str
    snapshot: int
    former: int | None
    moves_main: bool
    commits: int = 0
    records: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str | None] = field(default_factory=dict)
    pipelines: Sequence[str] = ()
    stateful: Sequence[str] = ()

    @property
    def has_changes(self) -> bool:
        """True if there is something to commit."""
        return self.moves_main or bool(self.records)


def publish(table: Table, branch: str) -> Publication:
    """Moves main to the head of a branch, and gives main the records of the branch's pipelines.

    Raises:
        NotFound: There is no such branch.
        InputError: Main has moved since the branch was made, or the pipelines could not continue in main.
        EngineNeeded: PyIceberg cannot write the table's metadata.
        RunError: The table was changed meanwhile, or the catalog cannot be reached.
    """
    planned = plan_publication(table, branch)
    if planned.has_changes:
        refuse_unwritable(table, f"run `helios branch {table.name} {branch} --publish`, which then uses Spark.")
        with translating_errors(table, f"publishing {branch}"):
            _commit(table, planned)
    return planned


def plan_publication(table: Table, branch: str) -> Publication:
    """Returns the change that publishes a branch, and writes nothing. Raises the same errors as `publish`."""
    refresh(table)
    metadata = table.iceberg.metadata
    head = _head(table, branch)
    main = metadata.refs.get(MAIN)
    former = main.snapshot_id if main is not None else None
    history = list(ancestors(metadata, head))
    moves = former is None or head not in ancestors(metadata, former)
    if moves and former is not None:
        _refuse_moved(table, branch, history, former)
    known = records(metadata.properties, table.name)
    for name, record in known.items():
        if record.branch == branch and not _is_repair_record(name, known):
            _refuse_unready(table, branch, head, name, record)
    changed = _records_of_main(table, branch, known, moves=moves)
    names_read = {*changed, *(record.published for record in changed.values() if record.published is not None)}
    return Publication(
        branch=branch,
        snapshot=head,
        former=former,
        moves_main=moves,
        commits=len(history[: history.index(former)] if former in history else history) if moves else 0,
        records={LEDGER + name: record.as_json() for name, record in changed.items()},
        known={LEDGER + name: metadata.properties.get(LEDGER + name) for name in names_read},
        pipelines=sorted(name for name in changed if not _is_repair_record(name, known)),
        stateful=sorted(
            name for name, record in known.items() if record.branch == branch and _needs_checkpoint(name, record)
        ),
    )


def _head(table: Table, branch: str) -> int:
    """Returns the head of a branch. Refuses a branch that cannot be published."""
    branches, tags = table.branches(), table.tags()
    if branch == MAIN:
        raise InputError("main is the branch that others are published to.", where=caller(), fix="name another branch.")
    if branch in tags:
        raise InputError(
            f"{branch} is a tag of {table.name}, and only a branch can be published.",
            where=caller(),
            fix=f"if main was at that tag before, set it back with `helios rollback {table.name} {branch}`.",
        )
    if branch not in branches:
        raise NotFound(f"table {table.name} has no branch {branch!r}. {near_miss(branch, branches)}", where=caller())
    if branch.startswith(AUDIT):
        pipeline = branch.removeprefix(AUDIT)
        raise InputError(
            f"{branch} of {table.name} has a batch of {pipeline} that waits for its audit.",
            where=caller(),
            fix=f"run {pipeline} again, which audits and publishes the batch; `helios quarantine` discards it.",
        )
    return branches[branch]


# records


def _refuse_unready(table: Table, branch: str, head: int, name: str, record: Record) -> None:
    """Refuses a pipeline of the branch if main would lack the pipeline's rows or its remembered deletes.

    Raises:
        InputError: The branch lacks the pipeline's last batch, or the pipeline's deletes are in its checkpoint.
    """
    if record.snapshot is not None:
        landing = Landing(batch=record.batch, snapshot=record.snapshot, sequence=record.sequence)
        if presence_in(table, head, landing) is Presence.GONE:
            raise InputError(
                f"{branch} of {table.name} was set back or replaced: it lacks snapshot {record.snapshot} with batch "
                f"{record.batch} of {name}, after which {name} would continue in main; nothing was published.",
                where=caller(),
                fix=f"set {branch} to a snapshot with that batch, or run {name} once with --new-checkpoint, which "
                "accepts the branch as it is; then publish.",
            )
    if record.upserts is not None and record.upserts.get("remembers") and record.keys is None:
        raise InputError(
            f"{name} keeps its deleted keys in its checkpoint for {branch}, where a run on main does not look; nothing "
            "was published.",
            where=caller(),
            fix=f"run {name} once with --new-checkpoint, which moves them into the warehouse if the client can reach "
            "it; then publish.",
        )


def _records_of_main(table: Table, branch: str, known: Mapping[str, Record], *, moves: bool) -> dict[str, Record]:
    """Returns the records that change, by pipeline.

    Raises:
        InputError: A pipeline of main has read the same source up to another position.
    """
    changed: dict[str, Record] = {}
    for name, record in known.items():
        if record.branch != branch:
            continue
        # The records of replays and backfills stay on the branch: their names do not end with `@branch`.
        main = name.removesuffix(f"@{branch}")
        if "@" not in name:
            changed[name] = replace(record, branch=None)
        elif main != name and record.position is not None and not _needs_checkpoint(name, record):
            own = known.get(main)
            copy = replace(record, branch=None, published=name, formerly=tuple(dict.fromkeys((*record.formerly, name))))
            if own is None or own.position is None:
                changed[main] = copy
            elif own.position == record.position:
                continue
            elif (own.published or "").endswith(f"@{branch}") or _only_began(table, own, branch):
                changed[main] = copy
            elif moves and have_common_source(own, record) and (own.upserts is None or own.upserts != record.upserts):
                # Not for pipelines with equal upserts: these may write a row again, which changes nothing.
                raise _two_positions_error(table, main, name)
    return changed


def _is_repair_record(name: str, known: Iterable[str]) -> bool:
    """True if a record belongs to the replays or backfills of a pipeline."""
    return any(suffix and name.endswith(suffix) and name.removesuffix(suffix) in known for suffix in OWN_SUFFIXES)


def _only_began(table: Table, own: Record, branch: str) -> bool:
    """True if main's pipeline has started after the last publication of the branch, but has not written since."""
    stamps = summary_of(table.iceberg.metadata, own.snapshot) if own.snapshot is not None else {}
    return own.batch < 0 and stamps.get("helios.pipeline", "").endswith(f"@{branch}")


def _needs_checkpoint(name: str, record: Record) -> bool:
    """True if a pipeline that is named after its branch has state, so that no other checkpoint can continue it."""
    return "@" in name and any(
        "place" not in entry and "to" in entry for entry in (record.position or {}).get("sources") or ()
    )


def _two_positions_error(table: Table, main: str, name: str) -> InputError:
    return InputError(
        f"{main} has read the same source as {name} up to another position: after the publication, {main} would write "
        f"the rows of the branch to {table.name} once more, or skip rows; nothing was published.",
        where=caller(),
        fix=f"give the pipeline of the branch a name of its own with .named(new, was={name!r}), run it once and "
        f"publish; and do not run {main} again.",
    )


# the check that main has not moved


def _refuse_moved(table: Table, branch: str, history: Sequence[int], former: int) -> None:
    """Refuses a branch that does not begin at the current head of main.

    Args:
        history: The retained snapshots of the branch, from its head backwards.
        former: The newest snapshot of main.

    Raises:
        InputError: Main has commits that the branch lacks, was rolled back, or nothing shows where the branch begins.
    """
    metadata = table.iceberg.metadata
    if former in history:
        ahead = next((id for id in history[: history.index(former)] if main_had(metadata, id)), None)
        if ahead is not None:
            raise InputError(
                f"main of {table.name} was rolled back from snapshot {ahead}, which {branch} has, to {former}: "
                "publishing would bring those commits back; nothing was published.",
                where=caller(),
                fix=f"if main is to have them again, run `helios rollback {table.name} {ahead}` and publish; else "
                "stage again on a new branch, with a pipeline of a new name.",
            )
        return
    raw = metadata.snapshot_by_id(former)
    sequence = (raw.sequence_number or 0) if raw is not None else 0
    present = presence_in(table, history[0], Landing(batch=-1, snapshot=former, sequence=sequence))
    if present is Presence.GONE:
        raise _moved_error(table, branch, history, former)
    if present is Presence.UNKNOWN:
        raise InputError(
            f"nothing proves that {branch} of {table.name} begins at main: snapshots between them have expired, and so "
            "have the metadata files that named them; nothing was published.",
            where=caller(),
            fix=f"compare them with `helios diff {table.name} --to {branch}`, and stage again on a new branch.",
        )


def _moved_error(table: Table, branch: str, history: Sequence[int], former: int) -> InputError:
    """The error for commits of main that the branch lacks. The fix names the choices."""
    metadata = table.iceberg.metadata
    main_history = list(ancestors(metadata, former))
    fork = next((snapshot for snapshot in main_history if snapshot in history), None)
    newer = main_history[: main_history.index(fork)] if fork is not None else main_history
    newer_snapshots = [metadata.snapshot_by_id(id) for id in newer]
    compacted = fork is not None and all(
        raw is not None and raw.summary is not None and raw.summary.operation.value == "replace"
        for raw in newer_snapshots
    )
    count = f"{len(newer)} {'commit' if len(newer) == 1 else 'commits'}"
    stage_again = "stage again on main as it is, with .branch() of a new name and a pipeline of a new name"
    rollback_command = f"`helios rollback {table.name} {fork}`"
    if compacted:
        newer_commits, fix = (
            f"{count} that only rewrote files",
            f"undo them with {rollback_command}, which loses no row, and publish.",
        )
    else:
        writers = sorted({summary_of(metadata, id).get("helios.pipeline", "another writer") for id in newer})
        newer_commits, fix = f"{count} by {', '.join(writers)}", f"{stage_again}."
        if fork is not None:
            diff_hint = f"see them with `helios diff {table.name} --from {fork}`"
            fix = f"{diff_hint}; then remove them with {rollback_command} and publish, or {fix}"
    fork_text = f" at snapshot {fork}" if fork is not None else ""
    return InputError(
        f"main of {table.name} has moved since {branch} began{fork_text}: {newer_commits}; nothing was published.",
        where=caller(),
        fix=fix,
    )


# the commit


def _commit(table: Table, planned: Publication) -> None:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
        TableUpdate,
    )

    metadata, catalog = table.iceberg.metadata, table.iceberg.catalog
    heads: Mapping[str, int | None] = {planned.branch: planned.snapshot, MAIN: planned.former}
    expected: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    expected += [AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": id}) for ref, id in heads.items()]
    if not isinstance(catalog, RestCatalog):  # a REST server checks only the heads
        expected.append(_same_records()(known=dict(planned.known)))
    updates: list[TableUpdate] = []
    if planned.moves_main:
        updates.append(SetSnapshotRefUpdate.model_validate(_main_at(metadata, planned.snapshot)))
    if planned.records:
        updates.append(SetPropertiesUpdate(updates=dict(planned.records)))
    catalog.commit_table(table.iceberg, tuple(expected), tuple(updates))
    table.iceberg.refresh()


@cache
def _same_records() -> type[Any]:
    """A requirement of a commit that the records have not changed since they were read."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import ValidatableTableRequirement

    class AssertRecords(ValidatableTableRequirement):
        type: Literal["assert-records"] = "assert-records"
        known: dict[str, str | None]

        def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
            properties = base_metadata.properties if base_metadata is not None else {}
            if any(properties.get(key) != text for key, text in self.known.items()):
                raise CommitFailedException("a record of a pipeline has changed")

    AssertRecords.model_rebuild(_types_namespace={"Literal": Literal, "TableMetadata": Any})
    return AssertRecords


def _main_at(metadata: TableMetadata, snapshot: int) -> dict[str, object]:
    """The update that sets main to a snapshot, and keeps the retention of main."""
    main = metadata.refs.get(MAIN)
    kept = {
        "max-ref-age-ms": main.max_ref_age_ms if main is not None else None,
        "max-snapshot-age-ms": main.max_snapshot_age_ms if main is not None else None,
        "min-snapshots-to-keep": main.min_snapshots_to_keep if main is not None else None,
    }
    named = {"ref-name": MAIN, "type": "branch", "snapshot-id": snapshot}
    return {**named, **{key: value for key, value in kept.items() if value is not None}}
