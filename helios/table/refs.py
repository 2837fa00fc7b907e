"""Branches and tags of a table, and rollbacks of main: checked first, then made through PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.errors import DeclarationError, EngineNeeded, HeliosError, InputError, NotFound, RunError, near_miss
from helios.model.values import Point, caller, is_ref_name
from helios.table.snapshot import Snapshot

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.snapshot import ManageSnapshots

    from helios.table.snapshots import Table

MAIN = "main"
LEDGER = "helios.ledger."
"""The prefix of table properties: `helios.ledger.<pipeline>` has the record of a pipeline that writes the table."""
ATTEMPT = "helios.attempt"
"""The summary entry that identifies the snapshots of one transaction."""
REPLAY = ".replay"
"""Replays of a pipeline's quarantine are recorded as `<pipeline>.replay`."""
BACKFILL = ".backfill"
"""Backfills of a pipeline are recorded as `<pipeline>.backfill`."""
OWN_SUFFIXES = ("", REPLAY, BACKFILL)
"""The suffixes of a pipeline's name under which its own commits are recorded."""


@dataclass(frozen=True)
class RefChange:
    """A change of a branch or a tag, checked against the table.

    Attributes:
        action: create_tag, create_branch, remove_tag, remove_branch, or set_main.
        name: The branch or the tag.
        snapshot: Its snapshot after the change; for a removal, before the change.
    """

    action: str
    name: str
    snapshot: int


@dataclass(frozen=True)
class Rollback:
    """The result of a rollback.

    Attributes:
        snapshot: The snapshot of main now.
        former: The snapshot of main before.
        pipelines: The names of pipelines, replays and backfills whose last commit is no longer in main. The next run
            of such a pipeline, or of a pipeline with such a replay, stops with an error.
    """

    snapshot: Snapshot
    former: Snapshot
    pipelines: tuple[str, ...]


def creation(table: Table, action: str, name: str, point: Point | None) -> RefChange:
    """Returns the change that creates a tag or a branch at a snapshot, by default the current one.

    Raises:
        InputError: The name exists or is invalid, there is no such snapshot, or the table is empty.
    """
    if not is_ref_name(name):
        raise DeclarationError(
            f"{name!r} cannot be the name of a tag or a branch.",
            where=caller(),
            fix="use letters, digits, '_', '-' and '.', and not digits alone, which are a snapshot id.",
        )
    refresh(table)
    for kind, known in (("tag", table.tags()), ("branch", table.branches())):
        if name in known:
            raise InputError(
                f"table {table.name} has a {kind} {name!r} already, at snapshot {known[name]}.",
                where=caller(),
                fix=f"choose another name, or remove that {kind} first.",
            )
    current = table.current_snapshot()
    if current is None:
        raise InputError(f"table {table.name} has no snapshots: there is nothing to name.", where=caller())
    return RefChange(action, name, current.id if point is None else table.find(point).id)


def removal(table: Table, action: str, name: str) -> RefChange:
    """Returns the change that removes a tag or a branch.

    Raises:
        NotFound: There is no tag or branch with that name.
        DeclarationError: The branch is `main`.
    """
    kind = action.removeprefix("remove_")
    if name == MAIN and kind == "branch":
        raise DeclarationError("the branch 'main' is the table itself, and stays.", where=caller())
    refresh(table)
    known = table.tags() if kind == "tag" else table.branches()
    if name not in known:
        raise NotFound(f"table {table.name} has no {kind} {name!r}. {near_miss(str(name), known)}", where=caller())
    return RefChange(action, name, known[name])


def rollback(table: Table, point: Point) -> tuple[RefChange | None, Rollback]:
    """Returns the change that rolls main back, and its result. The change is None if main is at that snapshot already.

    Raises:
        NotFound: There is no such snapshot, time or tag.
        InputError: Main was never at that snapshot.
    """
    refresh(table)
    to, former = table.find(point), table.current_snapshot()
    metadata = table.iceberg.metadata
    past_heads = {entry.snapshot_id for entry in metadata.snapshot_log}
    if former is None or to.id not in past_heads | set(ancestors(metadata, former.id)):
        raise InputError(
            f"the main branch of {table.name} was never at snapshot {to.id}, so this is not a rollback.",
            where=caller(),
            fix="choose one of main's own snapshots.",
        )
    change = RefChange("set_main", MAIN, to.id) if to != former else None
    return change, Rollback(to, former, _losing_pipelines(metadata, to.id, former.id))


def ancestors(metadata: TableMetadata, head: int) -> Iterator[int]:
    """The retained snapshots of a history, from its head backwards."""
    parents = {raw.snapshot_id: raw.parent_snapshot_id for raw in metadata.snapshots}
    current: int | None = head
    while current is not None and current in parents:
        yield current
        current = parents[current]


def _losing_pipelines(metadata: TableMetadata, to: int, former: int) -> tuple[str, ...]:
    """The pipelines, replays and backfills whose last commit is no longer in main after a rollback."""
    lost_ids = set(ancestors(metadata, former)) - set(ancestors(metadata, to))
    sequences = {raw.snapshot_id: raw.sequence_number or 0 for raw in metadata.snapshots}
    losing = []
    for key, text in sorted(metadata.properties.items()):
        if not key.startswith(LEDGER):
            continue
        try:
            record = json.loads(text)
            last, sequence = record["snapshot"], int(record.get("sequence") or 0)
        except (ValueError, KeyError, TypeError):
            continue  # a damaged record stops its own pipeline
        # An expired snapshot with a higher sequence number than `to` cannot be an ancestor of `to`.
        expired = last is not None and last not in sequences
        if last in lost_ids or (expired and sequences[to] < sequence):
            losing.append(key.removeprefix(LEDGER))
    return tuple(losing)


# through PyIceberg


def refresh(table: Table) -> None:
    with translating_errors(table, "reading it"):
        table.iceberg.refresh()


def apply(table: Table, change: RefChange) -> Snapshot:
    """Makes a change, and returns its snapshot.

    Raises:
        EngineNeeded: PyIceberg cannot write the table's metadata.
        RunError: The table was changed meanwhile, or the catalog cannot be reached.
    """
    refuse_unwritable(table, f"run `{_command(table, change)}`, which then uses Spark.")
    with translating_errors(table, change.action.replace("_", " ")):
        CHANGES[change.action](table.iceberg.manage_snapshots(), change, table.iceberg.metadata.refs).commit()
    return table.snapshot(change.snapshot)


def _command(table: Table, change: RefChange) -> str:
    """The command that makes a change."""
    if change.action == "set_main":
        return f"helios rollback {table.name} {change.snapshot}"
    verb, kind = change.action.split("_")
    option = f"--snapshot {change.snapshot}" if verb == "create" else "--delete"
    return f"helios {kind} {table.name} {change.name} {option}"


def refuse_unwritable(table: Table, fix: str) -> None:
    """Refuses a change that PyIceberg would abort halfway.

    Raises:
        EngineNeeded: The format is v3, and the catalog has no server that writes the metadata.
    """
    if table.iceberg.metadata.format_version < 3:
        return
    from pyiceberg.catalog.rest import RestCatalog

    if not isinstance(table.iceberg.catalog, RestCatalog):
        raise EngineNeeded(table.name, fix, caller())


@contextmanager
def translating_errors(table: Table, operation: str) -> Iterator[None]:
    """Turns errors of PyIceberg, its catalog clients and storage into errors of Helios; `operation` is for messages."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    try:
        yield
    except HeliosError:
        raise
    except (CommitFailedException, ValidationException) as error:
        raise RunError(
            f"table {table.name} was changed by another writer meanwhile; nothing was done.",
            where=caller(),
            fix="check the table, and repeat the command.",
        ) from error
    except Exception as error:
        # Clients raise the errors of their HTTP, SQL or Thrift libraries, which have no common base class.
        raise RunError(
            f"table {table.name}: {operation} failed: {type(error).__name__}: {error}", where=caller()
        ) from error


def _set_main(manage: ManageSnapshots, change: RefChange, refs: Mapping[str, Any]) -> ManageSnapshots:
    # PyIceberg's own rollback would drop the retention settings of main.
    main = refs[MAIN]
    return manage.create_branch(
        change.snapshot, MAIN, main.max_ref_age_ms, main.max_snapshot_age_ms, main.min_snapshots_to_keep
    )


CHANGES: dict[str, Callable[[ManageSnapshots, RefChange, Mapping[str, Any]], ManageSnapshots]] = {
    "create_tag": lambda manage, change, refs: manage.create_tag(change.snapshot, change.name),
    "create_branch": lambda manage, change, refs: manage.create_branch(change.snapshot, change.name),
    "remove_tag": lambda manage, change, refs: manage.remove_tag(change.name),
    "remove_branch": lambda manage, change, refs: manage.remove_branch(change.name),
    "set_main": _set_main,
}
"""The call of PyIceberg for each change."""
