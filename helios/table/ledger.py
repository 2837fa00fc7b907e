"""Reads the ledger of a table: the records and stamps of the pipelines that write it, and staged batches; no JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.errors import LedgerError
from helios.table.refs import LEDGER, MAIN, ancestors

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

AUDIT = "helios_audit_"
"""The prefix of audit branches: `helios_audit_<pipeline>` has the batch that a pipeline has not published yet."""

VERSION = 1
"""The newest version of records that this code reads."""


Starts: TypeAlias = Sequence[Mapping[str, Any]]
"""The starting positions of the followed sources: the entries of a checkpoint's `helios/start.json`."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The property `helios.ledger.<pipeline>`: the last batch of a pipeline that was committed or discarded.

    Attributes:
        checkpoint: The id of the checkpoint from which the batch was written.
        batch: The batch's number in that checkpoint; -1 before the first.
        position: The input of the batch, as in `helios.position`.
        snapshot: The snapshot that added the batch. For a discarded batch, the snapshot of the last batch in main;
            before the first batch of a checkpoint, the snapshot after which the checkpoint continues.
        sequence: The sequence number of `snapshot`.
        steps: The fingerprint of the pipeline's steps.
        aside: Whether the batch was discarded, so that main never had its rows.
        appended: The inputs of a batch pipeline's appends, as `helios.table.appended` keeps them; None if unknown.
        branch: The branch that the pipeline writes; None for main.
        start: The starting positions of the followed sources, as the checkpoint keeps them, if they depend on the time
            of the first start; None otherwise.
        upserts: The rule for which row of a key wins, as `helios.plan.other_upserts` writes it; None without upserts.
        beside: The other pipelines of the same source that `--beside` has named: this pipeline may write beside them.
        formerly: The former names of the pipeline, which are stamped on its older snapshots.
        quarantines: The quarantine tables that may have the pipeline's rows, by their full names.
        keys: The folder of the keys that the upserts remember, which other pipelines can read; None if the keys are in
            the checkpoint.
        audited: Whether batches have ever waited for an audit: someone may publish such a batch by hand.
        published: The pipeline of a published branch whose record was copied into this one; None after the next run.
        rolled_back: Whether a new checkpoint has ever skipped input whose rows the table has lost, or may have lost.
            A full refresh reads everything again, and resets this.
    """

    checkpoint: str
    batch: int = -1
    position: Mapping[str, Any] | None = None
    snapshot: int | None = None
    sequence: int = 0
    steps: str = ""
    aside: bool = False
    appended: Mapping[str, Any] | None = None
    branch: str | None = None
    start: Starts | None = None
    upserts: Mapping[str, Any] | None = None
    beside: Sequence[str] = ()
    formerly: Sequence[str] = ()
    quarantines: Sequence[str] = ()
    keys: str | None = None
    audited: bool = False
    published: str | None = None
    rolled_back: bool = False

    def renamed(self, was: str) -> Record:
        """The record for a new name of the pipeline; `was` is the former name."""
        return replace(self, formerly=tuple(dict.fromkeys((*self.formerly, was))))

    @property
    def landed(self) -> int:
        """The number of the last batch that may be in the table."""
        return self.batch - 1 if self.aside else self.batch

    @property
    def only_began(self) -> bool:
        """True if the record has only the starting positions of the pipeline, and no batch yet."""
        return self.position is None and self.start is not None

    @property
    def reads_once(self) -> bool:
        """True if the pipeline reads its sources once, and follows none of them."""
        entries = (self.position or {}).get("sources") or ()
        return bool(entries) and not any("place" in entry or "to" in entry for entry in entries)

    def as_json(self) -> str:
        values = asdict(self)
        for name in ("aside", "beside", "formerly", "quarantines", "audited", "rolled_back"):
            if not values[name]:
                del values[name]
        for name in ("appended", "branch", "start", "upserts", "keys", "published"):
            if values[name] is None:
                del values[name]
        return json.dumps({"v": VERSION, **values}, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A batch on the audit branch of its pipeline that is not in main yet.

    Attributes:
        branch: The audit branch.
        snapshot: The head of the branch.
        position: The input of the batch.
        checkpoint: The id of the checkpoint from which the batch was staged.
        steps: The fingerprint of the pipeline's steps.
        rows: The number of rows that the snapshot added.
    """

    branch: str
    snapshot: int
    batch: int
    position: Mapping[str, Any]
    checkpoint: str
    steps: str
    rows: int


def records(properties: Mapping[str, str], table: str) -> dict[str, Record]:
    """The records of a table, by pipeline.

    Raises:
        LedgerError: A record is damaged, or newer than this code.
    """
    entries = sorted((key, text) for key, text in properties.items() if key.startswith(LEDGER))
    return {key.removeprefix(LEDGER): parse_record(text, key, table) for key, text in entries}


def have_common_source(one: Record, other: Record) -> bool:
    """True if the last batches of two pipelines have read a common source."""
    source_ids = [
        {entry.get("uuid") or entry.get("source") for entry in (record.position or {}).get("sources") or ()}
        for record in (one, other)
    ]
    return bool(source_ids[0] & source_ids[1])


def has_written(get: Callable[[str], str | None], pipelines: Iterable[str], table: str) -> bool:
    """True if a table has a record of a batch of the given pipelines.

    Args:
        get: Reads a property of the table.
        pipelines: The names of the pipelines, such as a pipeline's present and former name.

    Raises:
        LedgerError: A record is damaged, or newer than this code.
    """
    texts = ((LEDGER + name, get(LEDGER + name)) for name in pipelines)
    known = [parse_record(text, key, table) for key, text in texts if text is not None]
    return any(record.batch >= 0 or record.position is not None for record in known)


def parse_record(text: str, key: str, table: str) -> Record:
    """Parses a record: the value of the property `key`.

    Raises:
        LedgerError: The record is damaged, or newer than this code.
    """
    try:
        values = json.loads(text)
        version = int(values.pop("v"))
        known = {field.name for field in fields(Record)}
        values = {name: value for name, value in values.items() if name in known}  # a later Helios may add fields
        record = Record(**values) if version <= VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise LedgerError(
            f"the ledger record {key} of {table} is damaged ({error}).",
            fix=f"restore the table property {key} from an older metadata file.",
        ) from error
    if record is None:
        raise LedgerError(
            f"the ledger record {key} of {table} was written by a newer Helios (the record has version {version}, and "
            f"this Helios reads up to {VERSION}).",
            fix="upgrade helios.",
        )
    return record


def audit_heads(metadata: TableMetadata) -> dict[str, int]:
    """The heads of the audit branches, by pipeline."""
    branches = ((name, ref) for name, ref in metadata.refs.items() if ref.snapshot_ref_type.value == "branch")
    return {name.removeprefix(AUDIT): ref.snapshot_id for name, ref in branches if name.startswith(AUDIT)}


def staged(metadata: TableMetadata, pipeline: str) -> Staged | None:
    """The unpublished batch at the head of a pipeline's audit branch; None if there is none."""
    head = audit_heads(metadata).get(pipeline)
    main = metadata.refs.get(MAIN)
    if head is None or (main is not None and head in ancestors(metadata, main.snapshot_id)):
        return None
    stamps, record = summary_of(metadata, head), _readable_record(metadata, pipeline)
    names = (pipeline, *(record.formerly if record is not None else ()))
    if stamps.get("helios.pipeline") not in names or _was_published(metadata, record, head, stamps):
        return None
    try:
        return Staged(
            branch=AUDIT + pipeline,
            snapshot=head,
            batch=int(stamps["helios.batch"]),
            position=json.loads(stamps["helios.position"]),
            checkpoint=stamps["helios.checkpoint"],
            steps=stamps.get("helios.steps", ""),
            rows=int(stamps.get("added-records") or 0),
        )
    except (KeyError, ValueError):
        return None  # a snapshot of another writer


def _readable_record(metadata: TableMetadata, pipeline: str) -> Record | None:
    """The record of a pipeline; None if it is missing or unreadable. (`records` refuses an unreadable one.)"""
    key = LEDGER + pipeline
    try:
        return parse_record(metadata.properties.get(key, ""), key, "")
    except LedgerError:
        return None


def _was_published(metadata: TableMetadata, record: Record | None, head: int, stamps: Mapping[str, str]) -> bool:
    """True if a staged batch was published, even if main has been rolled back since."""
    if record is None:
        return False
    if record.checkpoint == stamps.get("helios.checkpoint"):
        return record.snapshot == head
    return main_had(metadata, head)  # an earlier checkpoint staged the batch


def main_had(metadata: TableMetadata, snapshot: int) -> bool:
    """True if main was ever at a snapshot, as far as the table's snapshot log goes back."""
    return any(entry.snapshot_id == snapshot for entry in metadata.snapshot_log)


def summary_of(metadata: TableMetadata, snapshot: int) -> Mapping[str, str]:
    """The summary of a snapshot; empty when it has expired."""
    known = metadata.snapshot_by_id(snapshot)
    return known.summary.additional_properties if known is not None and known.summary is not None else {}
