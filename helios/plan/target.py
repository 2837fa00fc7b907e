"""The write plan of an Iceberg sink: its table, and the changes that a run makes to the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helios.catalog.names import TableName
from helios.catalog.operations import missing_table
from helios.errors import DeclarationError, HeliosError
from helios.model.partition import PartitionField
from helios.model.sink import IcebergSink
from helios.plan.checks.mirrors import atomic_problems
from helios.plan.checks.pipeline import name_clashes, partition_problems, show_fields, spec_fields
from helios.plan.checks.sinks import (
    contradictions,
    existing_key_problems,
    left_out,
    sort_terms,
    stored_columns,
    stream_problems,
    table_problems,
)
from helios.plan.checks.types import unsupported_types
from helios.plan.evolution import fields
from helios.plan.evolution.changes import Policy, Target
from helios.plan.evolution.evolve import Evolution, evolve
from helios.plan.nodes import ReadPlan, WritePlan
from helios.plan.properties import codec_problems, default_format
from helios.plan.typing.schema import Column, Schema, from_pyiceberg
from helios.table.growth import growth

if TYPE_CHECKING:
    from pyiceberg.table import Table

MERGE_ON_READ_SINCE = 2
"""The first format version that has delete files."""


def plan_write(
    sink: IcebergSink,
    table: TableName,
    quarantine: TableName | None,
    stream: Schema | None,
    *,
    reads: Sequence[ReadPlan] = (),
    offline: bool,
    name: str | None = None,
    was: str | None = None,
) -> tuple[WritePlan, list[HeliosError]]:
    """The write plan of a stream into a table, and its problems.

    Args:
        sink, table, quarantine: The declared sink, its table, and its table of rejected rows.
        stream: The columns of the stream; None if they are known only at run.
        reads: The sources, as far as they are known.
        offline: Whether the catalog may not be read.
        name: The pipeline's declared name; None if the pipeline is named after its table.
    """
    write = WritePlan(
        table=table,
        sink=sink,
        exists=None,
        uuid=None,
        format_version=sink.new_format,
        partitioning=sink.partitioning,
        file_format=default_format(sink),
        quarantine=quarantine,
    )
    write = replace(write, pipeline_names=tuple(filter(None, (name or write.default_name, was))))
    problems = [*contradictions(sink), *stream_problems(sink, stream), *atomic_problems(sink, table.catalog)]
    if quarantine is not None and quarantine.text == table.text:
        problems.append(
            DeclarationError(
                f"quarantine({sink.quarantine_table}): this is the target itself, {table.text}.",
                where=sink.origin,
                fix='give rejected rows a table of their own: quarantine("ns.rejected").',
            )
        )
    # The rows decide the names of routed and mirrored tables, so these are known only at run.
    if not offline and not sink.many_tables:
        if table.catalog.exists(table.name_in_catalog):
            write, more_problems = plan_existing(write, stream, reads)
            return write, problems + more_problems
        write = replace(write, exists=False)
    write, more_problems = _plan_new(write, stream)
    return write, problems + more_problems


def _plan_new(write: WritePlan, stream: Schema | None) -> tuple[WritePlan, list[HeliosError]]:
    """The write plan of a table that the run creates, or whose catalog was not read."""
    sink = write.iceberg
    problems: list[HeliosError] = [*codec_problems(sink, write.file_format)]
    columns = None
    if stream is not None and sink.mode.traits.stores_columns:
        write = replace(write, left_out=left_out(sink, stream, None))
        columns = stored_columns(sink, stream, write.left_out)
        problems += partition_problems(sink, columns)
        problems += name_clashes(sink, columns)
        problems += _unstorable_columns(write, columns)
    if write.exists is False:
        problems += _missing_table_problem(write)
        problems += _unpartitioned_problem(write, sink.partitioning or ())
    problems += table_problems(sink, stream, columns if write.exists is False else None)
    return write, problems


def _missing_table_problem(write: WritePlan) -> list[HeliosError]:
    """The problem of a missing table that the sink does not create."""
    sink = write.iceberg
    if sink.creates and sink.mode.traits.stores_columns:
        return []
    problem = missing_table(write.table.catalog, write.table.name_in_catalog, sink.origin)
    if not sink.mode.traits.stores_columns:
        problem.fix = f"name a table that exists: {sink.mode.call}() changes rows, and creates no table."
    return [problem]


def _unstorable_columns(write: WritePlan, columns: Schema) -> list[HeliosError]:
    """The problems of columns that a new table cannot have."""
    if not columns.exact:
        return []
    empty = Target(name=write.table.text, fields=(), format_version=write.format_version)
    evolution = evolve(fields.from_schema(columns), empty, Policy(), write.iceberg.origin)
    return list(evolution.problems)


def columns_of_new(sink: IcebergSink, table: TableName, stream: Schema) -> Schema | None:
    """The columns of the table that a sink creates for a stream.

    None if the columns are known only at run, or if the sink does not or cannot create the table.
    """
    columns = stored_columns(sink, stream, left_out(sink, stream, None)) if sink.mode.traits.stores_columns else None
    if columns is None or not columns.exact or not sink.creates:
        return None
    empty = Target(name=table.text, fields=(), format_version=sink.new_format)
    evolution = evolve(fields.from_schema(columns), empty, Policy(), sink.origin)
    return _as_schema(evolution.fields) if not evolution.problems else None


def _unpartitioned_problem(write: WritePlan, partitioning: Sequence[object]) -> list[HeliosError]:
    """The problem of a mode that replaces partitions, for a table without partitions."""
    if partitioning or not write.mode.traits.needs_partitions:
        return []
    return [
        DeclarationError(
            f"{write.mode.call}(): {write.table.text} is unpartitioned, so every batch would replace all of it.",
            where=write.iceberg.origin,
            fix='give it partitions with partition_by(day("ts")), or write overwrite() or overwrite("<filter>").',
        )
    ]


def plan_existing(
    write: WritePlan, stream: Schema | None, reads: Sequence[ReadPlan] = ()
) -> tuple[WritePlan, list[HeliosError]]:
    """The write plan of a stream into an existing table, and its problems.

    Args:
        write: The plan before the table is read.
        stream: The columns of the stream; None if they are known only at run.
    """
    iceberg = write.table.catalog.load(write.table.name_in_catalog).iceberg
    sink, before = write.iceberg, from_pyiceberg(iceberg.schema())
    actual = spec_fields(iceberg)
    write = replace(
        write,
        exists=True,
        uuid=str(iceberg.metadata.table_uuid),
        format_version=iceberg.metadata.format_version,
        partitioning=actual,
        file_format=default_format(sink, iceberg.properties),
        growth=growth(iceberg),
        bytes=_size(iceberg),
    )
    problems = [*codec_problems(sink, write.file_format), *_merge_on_read_problem(write)]
    problems += unsupported_types(
        write.table.text, iceberg.schema(), sink.origin, fix="drop them, or write another table"
    )
    after: Schema | None = before
    if stream is not None and sink.mode.traits.stores_columns:
        from helios.table.ledger import has_written

        written = has_written(iceberg.properties.get, write.pipeline_names, write.table.text)
        write = replace(write, left_out=left_out(sink, stream, before, has_written=written))
        evolution = _evolution(write, stream, iceberg, reads)
        if evolution is None or evolution.problems:
            after = None
            problems += evolution.problems if evolution is not None else ()
        else:
            write = replace(write, changes=tuple(map(str, evolution.changes)))
            after = _as_schema(evolution.fields)
    spec_changes, spec_problems = _spec_change(write, after)
    problems += spec_problems
    problems += _unpartitioned_problem(write, sink.partitioning or actual)
    branch_changes, branch_problems = _branch_change(sink, iceberg)
    problems += branch_problems
    problems += existing_key_problems(sink, stream, _after_renames(sink, before))
    problems += table_problems(sink, stream, after)
    changes = (*write.changes, *spec_changes, *_sort_change(sink, iceberg), *branch_changes)
    return replace(write, changes=changes), problems


def _evolution(write: WritePlan, stream: Schema, iceberg: Table, reads: Sequence[ReadPlan]) -> Evolution | None:
    """The evolution of the table for the stream.

    None if the names of columns are known only at run, or if the sink's calls contradict each other.
    """
    sink = write.iceberg
    declared = sink.evolution
    contradictory = declared.mode != "full" and (declared.renames or declared.drops)
    expected = stored_columns(sink, stream, write.left_out)
    if not expected.exact or contradictory:
        return None
    schema = iceberg.schema()
    spec = [field for field in iceberg.spec().fields if str(field.transform) != "void"]
    partitioned_by = {schema.find_column_name(field.source_id) for field in spec}
    partitioned_by |= {item.column for item in sink.partitioning or ()}
    sorted_by = {schema.find_column_name(field.source_id) for field in iceberg.sort_order().fields}
    sorted_by |= {term.by for term in sort_terms(sink)}
    target = Target(
        name=write.table.text,
        fields=fields.from_pyiceberg(schema),
        partitioned_by=frozenset(filter(None, partitioned_by)),
        sorted_by=frozenset(filter(None, sorted_by)),
        identifiers=frozenset(schema.identifier_field_names()),
        format_version=write.format_version,
    )
    renamed = tuple(pair for read in reads for pair in read.renamed)
    policy = Policy(mode=declared.mode, renames=declared.renames, drops=declared.drops, source_renames=renamed)
    return evolve(fields.from_schema(expected), target, policy, sink.origin)


def _as_schema(columns: fields.Fields) -> Schema:
    return Schema(tuple(Column.of(f.name, f.full_type, f.nullable is not False) for f in columns))


def _after_renames(sink: IcebergSink, columns: Schema) -> Schema:
    """The table's columns after the renames of the run."""
    names = {old.lower(): new for old, new in sink.evolution.renames}
    return Schema(tuple(replace(c, name=names.get(c.name.lower(), c.name)) for c in columns.columns))


def _spec_change(write: WritePlan, columns: Schema | None) -> tuple[list[str], list[HeliosError]]:
    """The change to the declared partition spec, as text, or the problems that prevent it."""
    sink, actual = write.iceberg, write.partitioning or ()
    if sink.partitioning is None or _lower_case(actual) == _lower_case(sink.partitioning):
        return [], []
    if not sink.evolves_partitioning:
        return [], [
            DeclarationError(
                f"{write.table.text} is partitioned by [{show_fields(actual)}], not by "
                f"[{show_fields(sink.partitioning)}].",
                where=sink.origin,
                fix="declare the table's partitioning, leave partition_by out, or change it for new data: "
                "partition_by(..., evolve=True).",
            )
        ]
    problems = partition_problems(sink, columns) if columns is not None else []
    return [f"partition by {show_fields(sink.partitioning)} from now on"], problems


def _lower_case(spec: Iterable[PartitionField]) -> list[PartitionField]:
    """Partition fields with their columns in lower case, because specs are compared without regard to case."""
    return [replace(item, column=item.column.lower()) for item in spec]


def _sort_change(sink: IcebergSink, iceberg: Table) -> list[str]:
    """The change to the declared sort order, as text; empty if the table has it already."""
    schema = iceberg.schema()
    actual = [
        ((schema.find_column_name(f.source_id) or "").lower(), str(f.transform), f.direction.name, f.null_order.name)
        for f in iceberg.sort_order().fields
    ]
    terms = sort_terms(sink)
    wanted = [
        (t.by.lower(), "identity", "DESC" if t.descending else "ASC", f"NULLS_{'FIRST' if t.nulls_first else 'LAST'}")
        for t in terms
    ]
    return [f"sort by {', '.join(map(str, terms))} from now on"] if terms and actual != wanted else []


def _branch_change(sink: IcebergSink, iceberg: Table) -> tuple[list[str], list[HeliosError]]:
    """The creation of a missing branch, as text, or the problem that prevents the creation."""
    name = sink.branch_name
    if name is None:
        return [], []
    ref = iceberg.metadata.refs.get(name)
    if ref is None:
        return [f"branch {name} from main"], []
    if ref.snapshot_ref_type == "branch":
        return [], []
    message = f"branch({name!r}): this is a tag of the table, which never moves."
    return [], [DeclarationError(message, where=sink.origin, fix="choose another name for the branch.")]


def _merge_on_read_problem(write: WritePlan) -> list[HeliosError]:
    """The problem of a declared merge-on-read for a table whose format version has no delete files."""
    if write.iceberg.row_changes != "merge-on-read" or write.format_version >= MERGE_ON_READ_SINCE:
        return []
    return [
        DeclarationError(
            f'write_mode("merge-on-read"): {write.table.text} is of format v{write.format_version}, which has no '
            "delete files.",
            where=write.iceberg.origin,
            fix='write write_mode("copy-on-write"), or upgrade the table first; Helios never upgrades a table.',
        )
    ]


def _size(table: Table) -> int | None:
    """The size in bytes of a table's data files; None if the summary of the newest snapshot does not have it."""
    current = table.current_snapshot()
    if current is None or current.summary is None:
        return None
    size = current.summary.get("total-files-size")
    return int(size) if size is not None else None
