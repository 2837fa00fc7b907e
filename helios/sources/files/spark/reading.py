"""Decides how files are read: in groups of files with equal columns, which are cast to the common columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import DataType, LongType, NullType, StringType, StructField, StructType

from helios.errors import InputError, NotFound, near_miss
from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.json_values import as_texts
from helios.sources.common.spark.schema_differences import extras, missing, with_extras
from helios.sources.common.spark.types import as_nullable, by_name, castable, united
from helios.sources.files.declare import FilesSource
from helios.sources.files.formats import FORMATS
from helios.sources.files.spark import partitions
from helios.sources.files.spark.columns import (
    FileColumns,
    columns_of,
    inferred_key,
    type_conflict_error,
    unreadable_files_error,
)
from helios.sources.files.spark.json_lines import infer_json
from helios.sources.files.spark.text_lines import refuse_encoding
from helios.sources.files.spark.text_numbers import infer_csv
from helios.sources.files.spark.text_values import READ_AS_TEXT, has_plain_lines, refuse_decimals, text_types
from helios.spark.jvm.sql import struct_of


@dataclass(frozen=True)
class Group:
    """Files with equal columns.

    Attributes:
        columns: The columns of the files, in their order; for text with the types that Spark's parser returns.
        nanos: The names of the columns with nanosecond timestamps.
        typed: The columns with the types to which their texts will be cast; None if the files are not text.
        fast: Whether plain lines are read in one pass.
    """

    files: tuple[File, ...]
    columns: StructType
    nanos: frozenset[str] = frozenset()
    typed: StructType | None = None
    fast: bool = False

    @property
    def stored(self) -> StructType:
        """The columns as Spark reads them: a nanosecond timestamp is a bigint."""
        as_long = {name: LongType() for name in self.nanos}
        return StructType([StructField(f.name, as_long.get(f.name, f.dataType)) for f in self.columns.fields])


@dataclass(frozen=True)
class Reading:
    """The decision how files are read.

    Attributes:
        groups: The files, by their columns.
        columns: The common columns of all files.
        partition_columns: The common columns that come from folders such as `day=2026-01-01`.
        bad: The files that cannot be read.
        inferred: The names, in lower case, of the columns that are not declared.
        planned_at: The time at which the batch of each file was planned, by path, in milliseconds since 1970; None if
            no column needs the time.
    """

    groups: tuple[Group, ...]
    columns: StructType
    partition_columns: StructType
    bad: tuple[FileColumns, ...] = ()
    inferred: frozenset[str] = frozenset()
    planned_at: Mapping[str, int] | None = None


def reading_of(
    context: SourceContext,
    source: FilesSource,
    files: Sequence[File],
    damaged: Mapping[File, str] | None = None,
    folders: Sequence[File] = (),
) -> Reading:
    """Decides how files are read.

    Args:
        damaged: The files that are known to be unreadable, with the causes.
        folders: More files, of which only the partition folders are used.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    refuse_encoding(source)
    damaged = damaged or {}
    inspected = columns_of(context.spark, source, [file for file in files if file not in damaged])
    inspected += [FileColumns(file, cause=damaged[file]) for file in files if file in damaged]
    bad = tuple(file for file in inspected if file.cause)
    if bad and source.bad_file == "fail":
        raise unreadable_files_error(source, bad)
    declared = _declared(source)
    partition_columns = _partition_columns(context, source, (*files, *folders))
    groups = _typed(context, source, _grouped(inspected), declared, partition_columns)
    if declared is None:
        columns = partitions.with_partition_columns(_united(context, source, groups), partition_columns)
    else:
        groups, misfits = _fitting(context, source, groups, declared, partition_columns)
        bad += misfits
        columns, partition_columns = _declared_and_added(source, groups, declared, partition_columns)
    refuse_decimals(source, columns)
    groups = tuple(replace(group, columns=_parser_columns(source, group.columns, columns)) for group in groups)
    groups = tuple(_with_text_types(source, group, partition_columns) for group in groups)
    inferred = frozenset(by_name(columns).keys() - by_name(declared or StructType()).keys())
    return Reading(groups, columns, partition_columns, bad, inferred)


def _partition_columns(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The partition columns of files. A column keeps its type during a run, unless the target may widen it."""
    known = by_name(context.inferred.partition_columns.get(inferred_key(source), StructType()))
    widening = context.plan.write.sink.evolution.mode == "full"
    columns = partitions.columns(source.path, [file.path for file in files])
    fields = [StructField(f.name, _wider(known.get(f.name.lower()), f.dataType, widening)) for f in columns.fields]
    all_known = known | by_name(StructType(fields))
    context.inferred.partition_columns[inferred_key(source)] = StructType(list(all_known.values()))
    return StructType(fields)


def _declared(source: FilesSource) -> StructType | None:
    if source.declared_schema is None:
        return None
    kind = as_nullable(struct_of(source.declared_schema))
    assert isinstance(kind, StructType)
    return kind


def _grouped(files: Sequence[FileColumns]) -> tuple[Group, ...]:
    """The readable files that may have rows, grouped by their columns."""
    groups: dict[tuple[str, frozenset[str]], list[FileColumns]] = {}
    for file in files:
        if file.columns is not None and not file.cause:
            groups.setdefault((file.columns.json(), file.nanos), []).append(file)
    return tuple(
        Group(tuple(file.file for file in group), group[0].columns or StructType(), group[0].nanos)
        for group in groups.values()
    )


def _typed(
    context: SourceContext,
    source: FilesSource,
    groups: tuple[Group, ...],
    declared: StructType | None,
    partition_columns: StructType,
) -> tuple[Group, ...]:
    """The groups with the types of their columns, inferred if neither the files nor the schema has them."""
    known = by_name(declared or context.inferred.columns.get(inferred_key(source), StructType()))
    if source.format == "json":
        if declared is not None and (source.rescued or source.extra == "ignore" or _fails_at_extra_fields(source)):
            return tuple(replace(group, columns=declared) for group in groups)
        return tuple(replace(group, columns=_infer(context, source, group, declared)) for group in groups)
    if source.format != "csv":
        return groups
    if not source.flag("header"):
        if declared is not None:
            from_folders = by_name(partition_columns)
            file_columns = StructType([f for f in declared.fields if f.name.lower() not in from_folders])
            return tuple(replace(group, columns=file_columns) for group in groups)
        return tuple(replace(group, columns=_infer(context, source, group)) for group in groups)
    return tuple(replace(group, columns=_csv_types(context, source, group, known, declared)) for group in groups)


def _fails_at_extra_fields(source: FilesSource) -> bool:
    """True if a json row with undeclared fields stops the run when it is read, so that no earlier search is needed."""
    fails = (source.extra, source.bad_row, source.bad_file) == ("fail", "fail", "fail")
    return fails and has_plain_lines(source)


def _csv_types(
    context: SourceContext,
    source: FilesSource,
    group: Group,
    known: dict[str, StructField],
    declared: StructType | None,
) -> StructType:
    """The columns of csv files, in the order of their header."""
    widening = declared is None and context.plan.write.sink.evolution.mode == "full"
    infers = declared is None or source.extra == "add"
    types: list[DataType] = [StringType() for _ in group.columns.fields]
    if infers and (widening or any(field.name.lower() not in known for field in group.columns.fields)):
        inferred = _infer(context, source, group)
        if len(inferred) == len(group.columns):  # otherwise all rows are shorter than the header, and bad
            types = [field.dataType for field in inferred.fields]
    pairs = zip(group.columns.fields, types, strict=True)
    return StructType([StructField(f.name, _wider(known.get(f.name.lower()), kind, widening)) for f, kind in pairs])


def _wider(known: StructField | None, kind: DataType, widening: bool) -> DataType:
    """The known type of a column, with `widening` united with `kind` if possible; `kind` if no type is known."""
    if known is None:
        return kind
    wider = united(known.dataType, kind) if widening and not isinstance(kind, StringType) else None
    return wider if wider is not None else known.dataType


def _infer(context: SourceContext, source: FilesSource, group: Group, declared: StructType | None = None) -> StructType:
    """The columns of files as Spark infers them from all rows. The result for the last group is cached.

    For json with a declared schema, plain lines with only declared fields are skipped.
    """
    key = inferred_key(source), group.files
    if key in context.inferred.last:
        return context.inferred.last[key]
    if source.format == "json":
        columns = infer_json(context.spark, source, group.files, declared if has_plain_lines(source) else None)
    else:
        columns = infer_csv(context, source, group.files)
    context.inferred.last = {key: columns}
    return columns


def _united(context: SourceContext, source: FilesSource, groups: Sequence[Group]) -> StructType:
    """The common columns of all files. Raises if a column has no common type, or if no file has columns."""
    inferred = not FORMATS[source.format].stores_types
    known = by_name(context.inferred.columns.get(inferred_key(source), StructType()))
    mode = context.plan.write.sink.evolution.mode
    fields = dict(known)
    first_file: dict[str, File] = {}
    for group in groups:
        for field in group.columns.fields:
            name = field.name.lower()
            earlier = fields.get(name)
            if earlier is None:
                kind: DataType | None = field.dataType
            elif name in known and inferred:
                # A known column keeps its type: a value that does not fit makes a bad row. A struct may gain fields.
                grown = with_extras(earlier.dataType, field.dataType)
                wider = united(grown, field.dataType) if mode == "full" else None
                kind = wider if wider is not None else grown
            else:
                kind = united(earlier.dataType, field.dataType, inferred=inferred)
            if kind is None:
                raise type_conflict_error(source, field, group.files[0], earlier, first_file.get(name))
            first_file.setdefault(name, group.files[0])
            fields[name] = StructField(earlier.name if earlier is not None else field.name, kind)
    if not fields:
        raise NotFound(
            f"{source.label()}: there is no file with columns.",
            where=source.origin,
            fix="check the path; for a folder that is still empty, pass schema=.",
        )
    columns = StructType(list(fields.values()))
    if mode == "strict" and source.format != "json":
        for group in groups:
            _refuse_missing(source, group, columns, "other files have")
    # Later batches also have these columns, at least as nulls, since the steps may use them.
    context.inferred.columns[inferred_key(source)] = columns
    return columns


def _fitting(
    context: SourceContext,
    source: FilesSource,
    groups: Sequence[Group],
    declared: StructType,
    partition_columns: StructType,
) -> tuple[tuple[Group, ...], tuple[FileColumns, ...]]:
    """The groups whose columns fit the declared columns, and the files that do not fit.

    Raises:
        InputError: A partition column does not fit, or a file does not fit and bad files are not quarantined.
    """
    if len(partition_columns):
        _refuse_columns(context, source, Group((), partition_columns), declared, StructType())
    fitting: list[Group] = []
    misfits: list[FileColumns] = []
    pending = list(groups)
    while pending:
        group = pending.pop(0)
        try:
            _refuse_columns(context, source, group, declared, partition_columns)
        except InputError as error:
            if source.bad_file != "quarantine":
                raise
            if source.format == "json" and len(group.files) > 1:  # some of the files may fit: halve the group
                middle = len(group.files) // 2
                halves = [replace(group, files=files) for files in (group.files[:middle], group.files[middle:])]
                pending = [replace(half, columns=_infer(context, source, half, declared)) for half in halves] + pending
            else:
                cause = error.what.replace(group.files[0].path, "it")
                misfits += [FileColumns(file, cause=cause) for file in group.files]
        else:
            fitting.append(group)
    return tuple(fitting), tuple(misfits)


def _refuse_columns(
    context: SourceContext, source: FilesSource, group: Group, declared: StructType, partition_columns: StructType
) -> None:
    """Refuses files whose columns do not fit the declared columns.

    Raises:
        InputError: A file has an undeclared column under extra="fail", lacks a column under a strict sink, has a type
            that cannot be cast to the declared one, or has a column with the name of the rescued column.
    """
    file_columns = StructType([*group.columns.fields, *partition_columns.fields])
    place = group.files[0].path if group.files else f"the name of a folder below {source.path}"
    undeclared = extras(file_columns, declared)
    if undeclared and source.extra == "fail" and not source.rescued:
        raise source.undeclared_error(undeclared, declared.names, place)
    if source.rescued in group.columns.names and source.format != "json":
        raise InputError(
            f"{place} already has a column {source.rescued!r}, in which rescued= would keep undeclared columns.",
            where=source.origin,
            fix="give rescued= another name.",
        )
    strict = context.plan.write.sink.evolution.mode == "strict"
    if strict and group.files and source.format != "json":
        _refuse_missing(source, replace(group, columns=file_columns), declared, "the schema declares")
    _refuse_casts(source, group, declared)


def _declared_and_added(
    source: FilesSource, groups: Sequence[Group], declared: StructType, partition_columns: StructType
) -> tuple[StructType, StructType]:
    """The columns of the reading (with extra="add" also undeclared columns), and the partition columns among them."""
    if source.extra != "add" or source.rescued:
        types = by_name(declared)
        names = [field.name.lower() for field in partition_columns.fields]
        return declared, StructType([types[name] for name in names if name in types])
    columns: DataType = declared
    for group in (*groups, *([Group((), partition_columns)] if len(partition_columns) else [])):
        as_text = StructType([StructField(name, StringType()) for name in group.columns.names])
        columns = with_extras(columns, as_text if source.adds_text else group.columns)
    assert isinstance(columns, StructType)
    return partitions.with_partition_columns(columns, partition_columns), partition_columns


def _refuse_missing(source: FilesSource, group: Group, wanted: StructType, wanted_by: str) -> None:
    absent = missing(group.columns, wanted)
    if absent:
        raise InputError(
            f"{group.files[0].path} has no column {absent[0]!r}, which {wanted_by}. "
            f"{near_miss(absent[0], [field.name for field in group.columns.fields])}",
            where=source.origin,
            fix='repair the file, or write .evolve_schema("add_columns") on the sink: the column is null then.',
        )


def _refuse_casts(source: FilesSource, group: Group, declared: StructType) -> None:
    if not FORMATS[source.format].stores_types:
        return
    file_fields = by_name(group.columns)
    for field in declared.fields:
        file_field = file_fields.get(field.name.lower())
        if file_field is None or (file_field.name in group.nanos and isinstance(field.dataType, LongType)):
            continue
        if not castable(file_field.dataType, field.dataType):
            raise InputError(
                f"{group.files[0].path}: {file_field.name} is {file_field.dataType.simpleString()}, which cannot be "
                f"read as {field.dataType.simpleString()}.",
                where=source.origin,
                fix=f"declare it as {file_field.dataType.simpleString()}, and convert it with a step.",
            )


def _parser_columns(source: FilesSource, file_columns: StructType, columns: StructType) -> StructType:
    """The columns as Spark's parser reads them: with the types of the files, or for text with those of `columns`."""
    if FORMATS[source.format].stores_types:
        return file_columns
    wanted = by_name(columns)
    fields = []
    for field in file_columns.fields:
        match = wanted.get(field.name.lower())
        kind = field.dataType
        if match is not None:
            kind = with_extras(match.dataType, kind) if source.rescued else match.dataType
        fields.append(StructField(field.name, StringType() if isinstance(kind, NullType) else kind))
    if source.format == "json":
        fields += [field for field in columns.fields if field.name.lower() not in by_name(file_columns)]
    return StructType(fields)


def _with_text_types(source: FilesSource, group: Group, partition_columns: StructType) -> Group:
    """The group with values that are parsed as strings, so that the cast to their type loses nothing silently."""
    if source.format not in READ_AS_TEXT:
        return group
    file_columns = as_texts(group.columns, text_types(source))
    assert isinstance(file_columns, StructType)
    # A column of the file is compared with a partition column of the same name. The fast way does not compare.
    is_compared = bool(by_name(file_columns).keys() & by_name(partition_columns).keys())
    fast = has_plain_lines(source) and not is_compared
    fast = fast and partitions.all_fit(source.path, [file.path for file in group.files], partition_columns)
    return replace(group, columns=file_columns, typed=group.columns, fast=fast)
