"""The Iceberg sink: the target table and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias, get_args

from helios.errors import DeclarationError
from helios.model.arguments import check_mapping, count, expression, flag, listed, one_of, text, text_pairs
from helios.model.data_files import CODECS, DEFAULT_FILE_SIZE, PROFILES, DataFiles, Profile
from helios.model.expressions import SqlText
from helios.model.flow import Sink
from helios.model.maintenance import Maintenance, maintenance
from helios.model.partition import PartitionField, by_name
from helios.model.retry import Retry
from helios.model.target import TargetKind
from helios.model.values import Identifier, caller, duration, is_ref_name
from helios.model.write_modes import WriteModes

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

__all__ = ["CODECS", "DEFAULT_FILE_SIZE", "PROFILES", "Evolution", "IcebergSink", "Profile"]

EvolutionMode: TypeAlias = Literal["strict", "add_columns", "full"]
EVOLUTIONS: tuple[EvolutionMode, ...] = get_args(EvolutionMode)


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """The rules by which a table's columns follow those of the stream.

    Attributes:
        renames: Old and new names of columns that were renamed.
    """

    mode: EvolutionMode = "add_columns"
    renames: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IcebergSink(WriteModes, DataFiles, Sink):
    """An Iceberg table, with exactly-once writes. Made by `Iceberg.sink`."""

    kind: ClassVar[str] = "iceberg"

    table: Identifier
    catalog: Catalog | str | None = None
    partitioning: tuple[PartitionField, ...] | None = None
    creates: bool = True
    format: int | None = None
    flush_rows: int | None = None
    flush_every: float | None = None
    properties: tuple[tuple[str, str], ...] = ()
    summary_entries: tuple[tuple[str, str], ...] = ()
    evolves_partitioning: bool = False
    evolution: Evolution = field(default_factory=Evolution)
    branch_name: str | None = None
    audits: tuple[tuple[str, str], ...] = ()
    publishes: bool = False
    routing: str | None = None
    quarantine_table: Identifier | None = None
    retry_policy: Retry = field(default_factory=Retry)
    maintenance: Maintenance | None = None

    # the table

    def partition_by(
        self, *fields: PartitionField | str | Sequence[PartitionField | str], evolve: bool = False
    ) -> Self:
        """Sets the partition spec. An existing table with another spec is an error, unless `evolve=True`.

        Args:
            fields: `day("ts")`, `bucket(16, "id")`, or a bare column name for its identity.
            evolve: Whether an existing table gets this spec, for data that is written from now on.

        Raises:
            DeclarationError: A field is not a transform, or occurs twice.
        """
        spec = tuple(by_name(f) if isinstance(f, str) else f for f in listed(fields))
        for item in spec:
            if not isinstance(item, PartitionField):
                raise DeclarationError(
                    f"partition_by takes transforms or column names, not {item!r}.",
                    where=caller(),
                    fix='write partition_by(day("ts"), bucket(16, "id"), "country").',
                )
        names = [item.name for item in spec]
        if len(set(names)) != len(names) or not spec:
            raise DeclarationError("partition_by needs fields, each once.", where=caller())
        return replace(self, partitioning=spec, evolves_partitioning=flag(evolve, "partition_by(evolve=)"))

    def exactly_once(self) -> Self:
        """Makes `check` refuse sources and steps that cannot produce the same rows again.

        Iceberg sinks always write exactly once, with or without this call.
        """
        return replace(self, demands_exactly_once=True)

    def create(self, create: bool = True) -> Self:
        """Sets whether the first write creates a missing table and namespace (the default)."""
        return replace(self, creates=flag(create, "create"))

    def format_version(self, version: Literal[2, 3]) -> Self:
        """Sets the format version of a new table: 2 or 3.

        The default is 3 with `.upsert`, whose deletes are then deletion vectors, and otherwise 2, which every reader
        supports. An existing table keeps its version: Helios never upgrades a table.

        Args:
            version: 2 or 3.

        Raises:
            DeclarationError: The version is another one.
        """
        if isinstance(version, bool) or version not in (2, 3):
            raise DeclarationError(f"format_version({version!r}): new tables have version 2 or 3.", where=caller())
        return replace(self, format=version)

    def checkpoint(self, location: str) -> Self:
        """Sets where the pipeline's progress is kept: a path or URI on a file system to which Spark can write."""
        if not isinstance(location, str) or not location.strip():
            raise DeclarationError(
                "checkpoint() needs a location.", where=caller(), fix='write checkpoint("/data/cp").'
            )
        return replace(self, checkpoint_location=location)

    def flush(self, rows: int | None = None, every: float | str | timedelta | None = None) -> Self:
        """Sets how often the pipeline commits.

        Args:
            rows: The approximate limit of rows in a batch, since a batch reads whole files.
            every: The time between batches; by default the time of `.tune`, or else the smallest `poll` of the sources.
        """
        if rows is None and every is None:
            raise DeclarationError(
                "flush() needs rows or a time.", where=caller(), fix='write flush(rows=10_000) or flush(every="1m").'
            )
        count(rows, "flush: rows")
        return replace(
            self,
            flush_rows=rows if rows is not None else self.flush_rows,
            flush_every=duration(every, "every") if every is not None else self.flush_every,
        )

    def table_properties(self, properties: Mapping[str, str]) -> Self:
        """Sets properties of a new table: `{"write.format.default": "avro"}`. An existing table keeps its own."""
        return replace(self, properties=text_pairs(properties, "table_properties"))

    def snapshot_properties(self, properties: Mapping[str, str]) -> Self:
        """Adds entries to the snapshot summary of every commit: `{"team": "sales"}`.

        Raises:
            DeclarationError: A key is reserved for Helios, Iceberg or Spark (`helios.*`, `total-records`, ...).
        """
        pairs = text_pairs(properties, "snapshot_properties")
        for key, _ in pairs:
            if key in RESERVED_SUMMARY_KEYS or key.startswith(("added-", "deleted-", "removed-", "total-", "spark.")):
                raise DeclarationError(
                    f"snapshot_properties: {key!r} is reserved for Iceberg or Spark.",
                    where=caller(),
                    fix="use another key.",
                )
        return replace(self, summary_entries=pairs)

    # columns

    def evolve_schema(self, mode: EvolutionMode) -> Self:
        """Sets how the table's columns follow those of the stream: "strict", "add_columns" (the default) or "full".

        strict stops at any difference. add_columns adds new columns as optional columns, and writes null into columns
        that the stream lacks. full also widens types (int to long, float to double, decimal precision), makes required
        columns optional, and applies `.renames` and `.drops`. No column is dropped without `.drops`.
        """
        return replace(self, evolution=replace(self.evolution, mode=one_of(mode, EVOLUTIONS, "evolve_schema")))

    def renames(self, names: Mapping[str, str]) -> Self:
        """Renames columns of the table, each once: `evolve_schema("full").renames({"old": "new"})`."""
        check_mapping(names, "renames", '{"old": "new"}')
        pairs = tuple((text(old, "renames"), text(new, "renames")) for old, new in names.items())
        if not pairs:
            raise DeclarationError(
                "renames() needs names.", where=caller(), fix='write renames({"old": "new"}), or leave it out.'
            )
        return replace(self, evolution=replace(self.evolution, renames=pairs))

    def drops(self, *columns: str | Sequence[str]) -> Self:
        """Drops columns of the table that the stream no longer carries: `evolve_schema("full").drops("c")`."""
        dropped = tuple(text(column, "drops") for column in listed(columns))
        if not dropped:
            raise DeclarationError("drops() needs columns.", where=caller(), fix='write drops("c"), or leave it out.')
        return replace(self, evolution=replace(self.evolution, drops=dropped))

    # branches and other tables

    def branch(self, name: str) -> Self:
        """Writes to a branch, which is created from main if it is missing. Main does not change.

        Raises:
            DeclarationError: The name is invalid, or reserved by Helios.
        """
        if not is_ref_name(text(name, "branch")) or name.startswith(RESERVED_PREFIX):
            raise DeclarationError(
                f"{name!r} cannot name a branch: such a name is not main or digits alone, has no '/', '..' or control "
                f"characters, and does not begin with {RESERVED_PREFIX!r}.",
                where=caller(),
                fix='write branch("audit").',
            )
        return replace(self, branch_name=name)

    def audit(self, checks: Mapping[str, SqlText]) -> Self:
        """Sets conditions on a batch's aggregates. Main gets the batch only if all hold (write-audit-publish).

        Args:
            checks: SQL conditions by name: `audit({"no_dup": "count(*) = count(DISTINCT id)"}).publish()`.
        """
        check_mapping(checks, "audit", '{"some": "count(*) > 0"}')
        if not checks:
            raise DeclarationError(
                "audit() needs at least one check.", where=caller(), fix='write audit({"some": "count(*) > 0"}).'
            )
        return replace(self, audits=tuple((text(n, "audit"), expression(c, "audit")) for n, c in checks.items()))

    def publish(self) -> Self:
        """Fast-forwards main to a batch that passed its `.audit(...)`."""
        return replace(self, publishes=True)

    def route(self, *, by: str) -> Self:
        """Writes one table per value of an expression, named `<table>_<value>`: `route(by="country")`.

        Values are letters, digits and `_`. Rows with null or any other value go to the quarantine; without a
        quarantine they stop the run.
        """
        return replace(self, routing=text(by, "route"))

    def quarantine(self, table: str) -> Self:
        """Sets the table for rejected rows. Each row is stored with its payload, reason, source position and batch."""
        return replace(self, quarantine_table=Identifier.parse(table, caller()))

    # failures and maintenance

    def retry(
        self,
        retries: int = Retry.retries,
        backoff: float = Retry.backoff,
        outage: float | str | timedelta = Retry.outage,
    ) -> Self:
        """Sets the retries before the run fails.

        Args:
            retries: How often a commit is tried again after a conflict.
            backoff: Seconds before the second try; each later pause is twice as long as the one before.
            outage: For how long an unreachable catalog or storage is retried: seconds, text or a timedelta; 0 for
                never.
        """
        is_count = isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0
        is_time = isinstance(backoff, (int, float)) and not isinstance(backoff, bool) and 0 < backoff < float("inf")
        if not is_count or not is_time:
            raise DeclarationError(
                f"retry(retries={retries!r}, backoff={backoff!r}) needs a count and a positive number of seconds.",
                where=caller(),
                fix=f"write retry(retries={Retry.retries}, backoff={Retry.backoff}).",
            )
        outage_seconds = 0.0 if outage == 0 else duration(outage, "outage")
        return replace(self, retry_policy=Retry(retries=retries, backoff=float(backoff), outage=outage_seconds))

    def maintain(
        self,
        *,
        compact: bool | int | str | None = None,
        expire: float | str | timedelta | None = None,
        orphans: float | str | timedelta | None = None,
        readers: Sequence[str] = (),
    ) -> Self:
        """Maintains the table between the batches of this pipeline.

        Args:
            compact: Rewrites small files: True for the table's target file size, or a size such as "512MB".
            expire: The age at which snapshots expire: "7d".
            orphans: The age at which files that no snapshot names are deleted: "3d".
            readers: Checkpoints of other readers of the table. The snapshots that they read next do not expire.
        """
        settings = maintenance(compact=compact, expire=expire, orphans=orphans, readers=readers)
        return replace(self, maintenance=settings)

    # derived from several calls

    @property
    def target_kind(self) -> TargetKind:
        if self.routing is not None:
            return TargetKind.ROUTED
        return TargetKind.AUDITED if self.audits else TargetKind.TABLE

    @property
    def iceberg(self) -> IcebergSink:
        return self

    @property
    def new_format(self) -> int:
        """The format version of a table that this sink creates."""
        if self.format is not None:
            return self.format
        value = dict(self.properties).get(FORMAT_PROPERTY, "")
        return int(value) if value in ("2", "3") else self.mode.traits.table_format

    @property
    def max_rows(self) -> int | None:
        return self.flush_rows or (self.profile.rows if self.profile else None)

    def label(self) -> str:
        return f"Iceberg.sink({self.table})"


FORMAT_PROPERTY = "format-version"

RESERVED_PREFIX = "helios_"
"""The prefix of the branches and tags that Helios creates for audited and discarded batches."""

RESERVED_SUMMARY_KEYS = frozenset(
    {"operation", "changed-partition-count", "wap.id", "published-wap-id", "source-snapshot-id"}
)
