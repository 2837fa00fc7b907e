"""The reading of files: groups of equal columns by footer or header, and their common columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import DataType, LongType, NullType, StringType, StructField, StructType

from helios.errors import InputError, NotFound, near_miss
from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.json_values import as_texts
from helios.sources.common.spark.types import by_name, castable, extras, missing, nullable, united, with_extras
from helios.sources.files.declare import FilesSource
from helios.sources.files.formats import FORMATS
from helios.sources.files.spark import partitions
from helios.sources.files.spark.columns import FileColumns, look, misfit, unreadable
from helios.sources.files.spark.json_lines import infer_json
from helios.sources.files.spark.text_lines import refuse_encoding
from helios.sources.files.spark.text_numbers import infer_csv
from helios.sources.files.spark.text_values import READ_AS_TEXT, has_plain_lines, refuse_decimals, texts
from helios.spark.jvm.sql import struct_of


@dataclass(frozen=True)
class Group:
    """Files with equal columns.

    Attributes:
        files: The files.
        own: Their columns, in their order.
        nanos: Those of their timestamps that are in nanoseconds.
        typed: Their columns with the types that texts stand for, if they are read as texts.
        plain: Whether their lines that are plain are read in one pass.
    """

    files: tuple[File, ...]
    own: StructType
    nanos: frozenset[str] = frozenset()
    typed: StructType | None = None
    plain: bool = False

    @property
    def stored(self) -> StructType:
        """The columns as Spark reads them: nanoseconds are a bigint."""
        as_long = {name: LongType() for name in self.nanos}
        return StructType([StructField(f.name, as_long.get(f.name, f.dataType)) for f in self.own.fields])


@dataclass(frozen=True)
class Reading:
    """How files are read.

    Attributes:
        groups: The files, by their columns.
        columns: The columns that they give together.
        keys: Those of them that are folders such as `day=2026-01-01`.
        bad: Files that cannot be read.
        inferred: Those whose types are inferred if they come from texts, in lower case.
        planned: When their batch was planned, by path, in milliseconds since 1970; where the source stores it.
    """

    groups: tuple[Group, ...]
    columns: StructType
    keys: StructType
    bad: tuple[FileColumns, ...] = ()
    inferred: frozenset[str] = frozenset()
    planned: Mapping[str, int] | None = None


def reading_of(
    context: SourceContext,
    source: FilesSource,
    files: Sequence[File],
    damaged: Mapping[File, str] | None = None,
    folders: Sequence[File] = (),
) -> Reading:
    """How files are read.

    Args:
        context: What the sources of the run share.
        source: The source.
        files: The files.
        damaged: Files of which is known that they cannot be read, and why.
        folders: More files, of which only the folders count.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    refuse_encoding(source)
    damaged = damaged or {}
    looks = look(context.spark, source, [file for file in files if file not in damaged])
    looks += [FileColumns(file, cause=damaged[file]) for file in files if file in damaged]
    bad = tuple(look for look in looks if look.cause)
    if bad and source.bad_file == "fail":
        raise unreadable(source, bad)
    declared = _declared(source)
    keys = _folders(context, source, (*files, *folders))
    groups = _typed(context, source, _grouped(looks), declared, keys)
    if declared is None:
        columns = _united(context, source, groups)
        columns, keys = partitions.appended(columns, keys)
    else:
        groups, others = _fitting(context, source, groups, declared, keys)
        bad += others
        columns, keys = _asked(source, groups, declared, keys)
    refuse_decimals(source, columns)
    groups = tuple(replace(group, own=_read_as(source, group.own, columns)) for group in groups)
    groups = tuple(_as_texts(source, group, keys) for group in groups)
    inferred = frozenset(by_name(columns).keys() - by_name(declared or StructType()).keys())
    return Reading(groups, columns, keys, bad, inferred)


def _folders(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The partition columns of folders, whose types stay the same during a run."""
    before = by_name(context.inferred.folders.get(source.path, StructType()))
    widening = context.plan.write.sink.evolution.mode == "full"
    columns = partitions.columns(source.path, [file.path for file in files])
    fields = [StructField(f.name, _wider(before.get(f.name.lower()), f.dataType, widening)) for f in columns.fields]
    context.inferred.folders[source.path] = StructType(list((before | by_name(StructType(fields))).values()))
    return StructType(fields)


def _declared(source: FilesSource) -> StructType | None:
    if source.declared_schema is None:
        return None
    kind = nullable(struct_of(source.declared_schema))
    assert isinstance(kind, StructType)
    return kind


def _grouped(found: Sequence[FileColumns]) -> tuple[Group, ...]:
    """The good files that may have rows, by their columns."""
    groups: dict[tuple[str, frozenset[str]], list[FileColumns]] = {}
    for file in found:
        if file.columns is not None and not file.cause:
            groups.setdefault((file.columns.json(), file.nanos), []).append(file)
    return tuple(
        Group(tuple(one.file for one in group), group[0].columns or StructType(), group[0].nanos)
        for group in groups.values()
    )


def _typed(
    context: SourceContext,
    source: FilesSource,
    groups: tuple[Group, ...],
    declared: StructType | None,
    keys: StructType,
) -> tuple[Group, ...]:
    """The groups with the types of their columns, inferred if neither the files nor the declaration has them."""
    known = by_name(declared or context.inferred.columns.get(source.path, StructType()))
    if source.format == "json":
        if declared is not None and (source.rescued or source.extra == "ignore" or _fails_by_rows(source)):
            return tuple(replace(group, own=declared) for group in groups)
        return tuple(replace(group, own=_infer(context, source, group, declared)) for group in groups)
    if source.format != "csv":
        return groups
    if not source.flag("header"):
        if declared is not None:
            own = StructType([field for field in declared.fields if field.name.lower() not in by_name(keys)])
            return tuple(replace(group, own=own) for group in groups)
        return tuple(replace(group, own=_infer(context, source, group)) for group in groups)
    return tuple(replace(group, own=_csv_types(context, source, group, known, declared)) for group in groups)


def _fails_by_rows(source: FilesSource) -> bool:
    """True if each row of json with other fields than the declared ones stops the run: nothing is read before."""
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
    guessed = declared is None or source.extra == "add"
    if guessed and (widening or any(field.name.lower() not in known for field in group.own.fields)):
        inferred = _infer(context, source, group)
        if len(inferred) == len(group.own):
            types = [field.dataType for field in inferred.fields]
        else:  # all rows are shorter than the header: each is a bad row
            types = [StringType() for _ in group.own.fields]
    else:
        types = [StringType() for _ in group.own.fields]
    fields = [
        StructField(field.name, _wider(known.get(field.name.lower()), kind, widening))
        for field, kind in zip(group.own.fields, types, strict=True)
    ]
    return StructType(fields)


def _wider(known: StructField | None, kind: DataType, widening: bool) -> DataType:
    """The type of a column: the known one, or under "full" a wider number."""
    if known is None:
        return kind
    both = united(known.dataType, kind) if widening and not isinstance(kind, StringType) else None
    return both if both is not None else known.dataType


def _infer(context: SourceContext, source: FilesSource, group: Group, declared: StructType | None = None) -> StructType:
    """The columns of files as Spark infers them from all their rows, see `infer_csv`; of the last ones, as it did.

    Of json with a declared schema, those of the rows that may have others.
    """
    if group.files in context.inferred.last:
        return context.inferred.last[group.files]
    if source.format == "json":
        known = declared if has_plain_lines(source) else None
        context.inferred.last = {group.files: infer_json(context.spark, source, group.files, known)}
        return context.inferred.last[group.files]
    kind = infer_csv(context, source, group.files)
    context.inferred.last = {group.files: kind}
    return kind


def _united(context: SourceContext, source: FilesSource, groups: Sequence[Group]) -> StructType:
    """The columns of all files.

    Raises:
        InputError: Two files have types that no type holds both of.
        NotFound: There is no file with columns.
    """
    inferred = not FORMATS[source.format].owns_types
    known = by_name(context.inferred.columns.get(source.path, StructType()))
    mode = context.plan.write.sink.evolution.mode
    fields = dict(known)
    seen: dict[str, File] = {}
    for group in groups:
        for field in group.own.fields:
            name = field.name.lower()
            before = fields.get(name)
            if before is None:
                kind: DataType | None = field.dataType
            elif name in known and inferred:
                # Later files have the types of the first ones: what does not parse is a bad row.
                grown = with_extras(before.dataType, field.dataType)
                kind = (united(grown, field.dataType) if mode == "full" else None) or grown
            else:
                kind = united(before.dataType, field.dataType, inferred=inferred)
            if kind is None:
                raise misfit(source, field, group.files[0], before, seen.get(name))
            seen.setdefault(name, group.files[0])
            fields[name] = StructField(before.name if before is not None else field.name, kind)
    if not fields:
        raise NotFound(
            f"{source.label()}: there is no file with columns.",
            where=source.origin,
            fix="check the path; for a folder that is still empty, pass schema=.",
        )
    columns = StructType(list(fields.values()))
    for group in groups if mode == "strict" and source.format != "json" else ():
        _refuse_missing(source, group, columns, "other files have")
    # A later batch has them too, if as nulls: the steps may name them.
    context.inferred.columns[source.path] = columns
    return columns


def _fitting(
    context: SourceContext, source: FilesSource, groups: Sequence[Group], declared: StructType, keys: StructType
) -> tuple[tuple[Group, ...], tuple[FileColumns, ...]]:
    """The groups whose columns fit the declared ones, and the rejected files.

    Raises:
        InputError: Those of a file do not, and such files are not set aside; or those of the folders.
    """
    if len(keys):
        _refuse_columns(context, source, Group((), keys), declared, StructType())
    fitting: list[Group] = []
    others: list[FileColumns] = []
    waiting = list(groups)
    while waiting:
        group = waiting.pop(0)
        try:
            _refuse_columns(context, source, group, declared, keys)
        except InputError as error:
            if source.bad_file != "quarantine":
                raise
            if source.format == "json" and len(group.files) > 1:  # its columns are those of all of its files
                half = len(group.files) // 2
                halves = [replace(group, files=files) for files in (group.files[:half], group.files[half:])]
                waiting = [replace(half, own=_infer(context, source, half, declared)) for half in halves] + waiting
            else:
                others += [
                    FileColumns(file, cause=error.what.replace(group.files[0].path, "it")) for file in group.files
                ]
        else:
            fitting.append(group)
    return tuple(fitting), tuple(others)


def _refuse_columns(
    context: SourceContext, source: FilesSource, group: Group, declared: StructType, keys: StructType
) -> None:
    """Refuses files whose columns do not fit the declared ones.

    Raises:
        InputError: A file has other columns and `extra` does not say what happens to them, lacks one under a strict
            sink, has a type that cannot become the declared one, or a column of the name that `rescued` has.
    """
    own = StructType([*group.own.fields, *keys.fields])
    place = group.files[0].path if group.files else f"the name of a folder below {source.path}"
    more = extras(own, declared)
    if more and source.extra == "fail" and not source.rescued:
        raise source.undeclared_error(more, declared.names, place)
    if source.rescued in group.own.names and source.format != "json":
        raise InputError(
            f"{place} has a column {source.rescued!r} itself, in which rescued= would keep the others.",
            where=source.origin,
            fix="give rescued= another name.",
        )
    strict = context.plan.write.sink.evolution.mode == "strict"
    if strict and group.files and source.format != "json":
        _refuse_missing(source, replace(group, own=own), declared, "the schema declares")
    _refuse_casts(source, group, declared)


def _asked(
    source: FilesSource, groups: Sequence[Group], declared: StructType, keys: StructType
) -> tuple[StructType, StructType]:
    """The declared columns, and under extra="add" those that the files have beside them; with the partition columns."""
    wanted = declared
    folder = [Group((), keys)] if len(keys) else []
    for group in (*groups, *folder):
        if source.extra == "add" and not source.rescued:
            own = StructType([StructField(name, StringType()) for name in group.own.names])
            grown = with_extras(wanted, own if source.adds_text else group.own)
            assert isinstance(grown, StructType)
            wanted = grown
    if source.extra == "add" and not source.rescued:
        return partitions.appended(wanted, keys)
    asked = by_name(declared)
    typed = [asked[field.name.lower()] for field in keys.fields if field.name.lower() in asked]
    return wanted, StructType(typed)


def _refuse_missing(source: FilesSource, group: Group, wanted: StructType, who: str) -> None:
    lacks = missing(group.own, wanted)
    if lacks:
        raise InputError(
            f"{group.files[0].path} has no column {lacks[0]!r}, which {who}. "
            f"{near_miss(lacks[0], [field.name for field in group.own.fields])}",
            where=source.origin,
            fix='repair the file, or write .evolve_schema("add_columns") on the sink: the column is null then.',
        )


def _refuse_casts(source: FilesSource, group: Group, declared: StructType) -> None:
    theirs = by_name(group.own)
    for field in declared.fields:
        own = theirs.get(field.name.lower())
        if own is not None and own.name in group.nanos and isinstance(field.dataType, LongType):
            continue
        if own is not None and FORMATS[source.format].owns_types and not castable(own.dataType, field.dataType):
            raise InputError(
                f"{group.files[0].path}: {own.name} is {own.dataType.simpleString()}, which cannot be read as "
                f"{field.dataType.simpleString()}.",
                where=source.origin,
                fix=f"declare it as {own.dataType.simpleString()}, and convert it with a step.",
            )


def _read_as(source: FilesSource, own: StructType, columns: StructType) -> StructType:
    """The schema with which files are read: their own types, or for text files the wanted ones."""
    if FORMATS[source.format].owns_types:
        return own
    wanted = by_name(columns)
    fields = []
    for field in own.fields:
        match = wanted.get(field.name.lower())
        kind = field.dataType
        if match is not None:
            kind = with_extras(match.dataType, kind) if source.rescued else match.dataType
        fields.append(StructField(field.name, StringType() if isinstance(kind, NullType) else kind))
    if source.format == "json":
        fields += [field for field in columns.fields if field.name.lower() not in by_name(own)]
    return StructType(fields)


def _as_texts(source: FilesSource, group: Group, keys: StructType) -> Group:
    """A group whose rows are parsed as strings, so that the cast to a column's type loses nothing silently."""
    if source.format not in READ_AS_TEXT:
        return group
    own = as_texts(group.own, texts(source))
    assert isinstance(own, StructType)
    # A file's own column of a folder's name is compared with it, of which a plain line knows nothing.
    plain = has_plain_lines(source) and not by_name(own).keys() & by_name(keys).keys()
    plain = plain and partitions.fit(source.path, [file.path for file in group.files], keys)
    return replace(group, own=own, typed=group.own, plain=plain)
