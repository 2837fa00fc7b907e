"""`Files.source(...)`: a folder of parquet, csv, json, avro, orc or text files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from helios.errors import DeclarationError, InputError, near_miss
from helios.model.arguments import TIMESTAMPS, TimestampUnit, columns_ddl, count, metadata_columns, one_of
from helios.model.flow import Source
from helios.model.values import caller, duration, show_seconds
from helios.sources.files.formats import (
    DEFAULT_OPTIONS,
    ENDINGS,
    FORMATS,
    ending_of,
    format_of,
    option_name,
    option_text,
    real_path,
    refuse_policies_without_schema,
    refuse_timestamps,
    refuse_values,
)
from helios.sources.files.option_values import check_value
from helios.table.file_names import data_files_below, overlap

if TYPE_CHECKING:
    from helios.catalog.storage import Storage

OnBadRow: TypeAlias = Literal["fail", "quarantine", "drop", "null"]
OnBadFile: TypeAlias = Literal["fail", "quarantine"]
OnMissing: TypeAlias = Literal["fail", "skip"]
OnChange: TypeAlias = Literal["fail", "reread"]
Extra: TypeAlias = Literal["fail", "ignore", "add"]

ON_BAD_ROW, ON_BAD_FILE = ("fail", "quarantine", "drop", "null"), ("fail", "quarantine")
ON_MISSING, ON_CHANGE = ("fail", "skip"), ("fail", "reread")
EXTRA = ("fail", "ignore", "add")

# How a plan describes each policy.
BAD_ROW_TEXTS = {
    "fail": "rows that do not parse stop the run",
    "quarantine": "rows that do not parse go to the quarantine",
    "drop": "rows that do not parse are left out and counted",
    "null": "values that do not parse become null",
}
BAD_FILE_TEXTS = {"fail": "stop the run", "quarantine": "are noted in the quarantine"}
EXTRA_TEXTS = {"fail": "stop the run", "ignore": "are left out", "add": "are read too"}

COLUMNAR: Mapping[str, tuple[str, ...]] = {"parquet": (), "csv": ("header", "sep", "delimiter"), "json": ()}
"""The formats that the columnar engine reads, each with the reader options that it supports."""

METADATA: Mapping[str, str] = {"_file": "string", "_modified": "timestamp", "_arrived": "timestamp"}
"""The metadata of a row's file that `.with_metadata` can add, each with the type of its column."""

MAX_NAMES = 1000
"""The format of a local folder is inferred from at most this number of file names."""

UNDECLARED_FIELDS = "it has fields that the columns lack: "
"""The beginning of the reason why a json row with undeclared fields is bad. The fields follow, as JSON."""

MAX_SHOWN = 5
"""The maximum number of columns that a message names."""


@dataclass(frozen=True, kw_only=True)
class FilesSource(Source):
    """Files of one format under a path, read once or followed. `Files.source` creates it."""

    kind: ClassVar[str] = "files"

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    missing: str = "fail"
    changed: str = "fail"
    extra: str = "fail"
    adds_text: bool = False  # with extra="add": whether undeclared columns are read as text, without inferring types
    rescued: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    bad_row: str = "fail"
    bad_file: str = "fail"
    timestamps: str = "s"
    storage: Storage | str | None = None
    owner_label: str = ""  # if another source, such as a webhook, stores its rows here: the label of that source

    @property
    def ledger_name(self) -> str:
        return self.path

    def in_folder(self, folder: str) -> Self:
        return replace(self, path=folder, poll=None)

    def overlaps(self, folder: str) -> bool:
        return overlap(real_path(self.path), real_path(folder))

    @property
    def engine_columns_or_reason(self) -> tuple[str, ...] | str:
        """() for all columns; or the reason why the columnar engine cannot read the files."""
        options = COLUMNAR.get(self.format)
        if options is None:
            return f"it reads {self.format}"
        if urlsplit(self.path).scheme not in ("", "file"):
            return f"its folder is on {urlsplit(self.path).scheme}"
        if self.rescued is not None:
            return "it rescues other columns"
        if self.metadata:
            return f"it stores {', '.join(name for _, name in self.metadata)}"
        if self.format == "json" and self.extra == "ignore":
            return "it leaves out other fields of json"
        unsupported = next((name for name, _ in self.options if name not in options), None)
        return f"its reader has the option {unsupported}" if unsupported is not None else ()

    @property
    def quarantining_calls(self) -> tuple[str, ...]:
        policies = (("on_bad_row", self.bad_row), ("on_bad_file", self.bad_file))
        return tuple(f'{call}("quarantine")' for call, action in policies if action == "quarantine")

    @property
    def jars(self) -> tuple[str, ...]:
        return FORMATS[self.format].jars

    def incremental(self, poll: float | str | timedelta = 60, *, max_files: int | None = None) -> Self:
        """Follows the folder: reads the present files, and then every new file once.

        Args:
            poll: How often to look for new files: seconds, text such as "30s", or a timedelta.
            max_files: The maximum number of files of one batch.
        """
        return replace(self, poll=duration(poll, "poll"), max_files=count(max_files, "max_files"))

    def on_missing(self, action: OnMissing) -> Self:
        """Sets the policy for files that disappear after a batch is planned, and before the batch has read them.

        Args:
            action: "fail" (the default) stops the run and names the file. "skip" continues without the file: the run
                reports and counts the file, and reads it if it appears again. "skip" also allows `--full-refresh` if
                files that an earlier run has read are gone: the new target lacks their rows.
        """
        return replace(self, missing=one_of(action, ON_MISSING, "on_missing"))

    def on_change(self, action: OnChange) -> Self:
        """Sets the policy for files whose size or modification time has changed since they were read or planned.

        Args:
            action: "fail" (the default) stops the run and names the file. "reread" reads the whole file again, as a
                new file.
        """
        return replace(self, changed=one_of(action, ON_CHANGE, "on_change"))

    def option(self, **options: str | float | bool) -> Self:
        """Sets options of Spark's reader for the format: `.option(sep=";", nullValue="NA", multiLine=True)`.

        Raises:
            DeclarationError: The format does not have the option, Helios does not pass the option to Spark, or the
                value is invalid or would lose data.
        """
        where = caller()
        texts: dict[str, str] = {}
        for name, value in options.items():
            option, text = option_name(name, self.format, where), option_text(name, value, where)
            check_value(option, text, self.format, where)
            texts[option] = text
        # Spark prefers `sep` to `delimiter`. So a new `delimiter` replaces the `sep` that .tsv files have by default.
        kept = {name: text for name, text in self.options if name != "sep" or "delimiter" not in texts}
        source = replace(self, options=tuple({**kept, **texts}.items()))
        refuse_values(source.reader_options(), where)
        if "timestampFormat" in source.reader_options():
            refuse_timestamps(self.path, "", self.timestamps)
        return source

    def on_bad_row(self, action: OnBadRow) -> Self:
        """Sets the policy for rows that do not parse, or whose values do not fit the declared types.

        Args:
            action: "fail" (default) stops the run, and names the file, the line and the text. "quarantine" writes the
                raw line to the quarantine of the sink. "drop" leaves the row out and counts it in `records_failed`.
                "null" keeps the row with null for each value that does not parse, as Spark does.
        """
        return replace(self, bad_row=one_of(action, ON_BAD_ROW, "on_bad_row"))

    def on_bad_file(self, action: OnBadFile) -> Self:
        """Sets the policy for files that cannot be read: empty, truncated, or of another format.

        Args:
            action: "fail" (default) stops the run, and names the file and the cause. "quarantine" notes the file in
                the quarantine of the sink, counts it in `records_failed`, and continues.
        """
        return replace(self, bad_file=one_of(action, ON_BAD_FILE, "on_bad_file"))

    def with_metadata(self, *names: str, **columns: str) -> Self:
        """Adds metadata of each row's file as columns, after all other columns.

        Args:
            names: "_file": the path of the file, as Spark writes it (`file:///in/a%20b.csv`), in the column
                `_source_file`, since Iceberg reserves `_file`. "_modified": when the file was written. "_arrived": when
                the batch of the file was planned; a replay keeps this time.
            columns: The same metadata, with other column names: `.with_metadata(path="_file")`.

        Raises:
            DeclarationError: A name is not "_file", "_modified" or "_arrived".

        Examples:
            >>> Files.source("in", "csv", schema="id bigint").with_metadata("_file", came="_arrived").metadata
            (('_source_file', '_file'), ('came', '_arrived'))
        """
        return replace(self, metadata=metadata_columns(names, columns, METADATA))

    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader, with Helios's defaults."""
        return {**dict(DEFAULT_OPTIONS.get(self.format, ())), **dict(self.options)}

    def flag(self, option: str, default: bool = False) -> bool:
        """True if an option of Spark's reader is set to true."""
        return self.reader_options().get(option, str(default)).lower() == "true"

    def details(self, format_version: int | None = None) -> Iterator[str]:
        if self.bad_row == self.bad_file == "fail":
            yield "rows that do not parse, and files that cannot be read, stop the run"
        else:
            yield f"{BAD_ROW_TEXTS[self.bad_row]}; files that cannot be read {BAD_FILE_TEXTS[self.bad_file]}"
        if self.declared_schema is None:
            yield "columns as the files name them"
        else:
            kept = f"are kept in {self.rescued}, as JSON" if self.rescued is not None else EXTRA_TEXTS[self.extra]
            yield f"other columns {kept}"
        if self.timestamps != "s":
            yield f"numbers for timestamps are {TIMESTAMPS[self.timestamps]}"
        if self.metadata:
            yield f"metadata of each row: {', '.join(name for name, _ in self.metadata)}"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        extra_applies = self.declared_schema is not None and self.rescued is None
        return {
            "path": self.path,
            "format": self.format,
            "options": self.reader_options(),
            "extra": self.extra if extra_applies else None,
            "rescued": self.rescued,
            "timestamps": self.timestamps if self.format == "json" else None,
            "metadata": dict(self.metadata),
            "on_bad_row": self.bad_row,
            "on_bad_file": self.bad_file,
            "on_missing": self.missing,
            "on_change": self.changed,
        }

    def undeclared_error(self, names: Sequence[str], declared: Iterable[str], place: str) -> InputError:
        """The error for files with columns that the declared schema lacks.

        Args:
            place: The file or folder that has the undeclared columns.
        """
        shown = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
        return InputError(
            f"{place} has columns that the declared schema lacks: {shown}. {near_miss(names[0], declared)}",
            where=self.origin,
            fix='declare them, or say what happens to them: extra="ignore" leaves them out, extra="add" reads them, '
            'rescued="_rescued" keeps them as JSON.',
        )

    def name_taken_error(self, name: str, place: str) -> InputError:
        """The error for a column that the files already have, and that `.with_metadata` would add.

        Args:
            place: The file, or the argument of `Files.source`, that has the column.
        """
        renamed = f'{name.lstrip("_")}_of_file="{dict(self.metadata)[name]}"'
        return InputError(
            f"{place} already has a column {name!r}, which .with_metadata() adds.",
            where=self.origin,
            fix=f"store the metadata under another name: .with_metadata({renamed}).",
        )

    def label(self) -> str:
        if self.owner_label:
            return self.owner_label
        followed = f".incremental(poll={show_seconds(self.poll)})" if self.poll is not None else ""
        return f"Files.source({self.path}, {self.format}){followed}"


class Files:
    """Folders of files as sources."""

    @staticmethod
    def source(
        path: str | os.PathLike[str],
        format: str | None = None,
        schema: str | Mapping[str, str] | None = None,
        *,
        extra: Extra = "fail",
        rescued: str | None = None,
        timestamps: TimestampUnit = "s",
        storage: Storage | str | None = None,
    ) -> FilesSource:
        """Reads all files under a path once. Columns are matched by name, from the footer or header of each file.

        Args:
            path: A file, a folder or a glob, local or on an object store (`s3://bucket/in/`). Folders below the path,
                such as `day=2026-01-01`, become columns.
            format: parquet, csv, json, avro, orc or text. By default, the ending of the path decides, or the
                endings of the files in a local folder.
            schema: Columns and Spark SQL types, as text ("id bigint, day date") or a mapping: only these columns are
                read. A column that a file lacks is null, or an error with `.evolve_schema("strict")`. By default, the
                files decide which columns are read, and Spark infers the types of csv and json.
            extra: The policy for undeclared columns of a file. "fail" stops the run and names the columns. "ignore"
                leaves the columns out. "add" reads the columns.
            rescued: The name of a column that keeps undeclared columns, as JSON.
            timestamps: The unit of json numbers in columns that the schema declares as timestamps: "s" (default), "ms"
                or "us" since 1970. A time outside of the years 1 to 9999 makes the row bad.
            storage: The storage of the path, or its name in `[storages]`. By default, the storage of a catalog of the
                pipeline: of the catalog whose warehouse is in the path's bucket, or else of the first catalog on the
                same type of storage. If there is none, the cloud's default credentials.

        Raises:
            DeclarationError: The format is unknown or not clear, or `extra`, `rescued` or `timestamps` is invalid.
        """
        path = _path(path)
        file_format = _format(path, format)
        one_of(extra, EXTRA, "extra")
        refuse_policies_without_schema(path, schema, {"rescued": rescued is not None, "extra": extra != "fail"})
        refuse_timestamps(path, file_format if schema is not None else "", timestamps)
        tsv_options = (("sep", "\t"),) if ending_of(path.rsplit("/", 1)[-1]) == "tsv" else ()
        return FilesSource(
            path=path,
            format=file_format,
            declared_schema=columns_ddl(schema),
            options=tsv_options,
            extra=extra,
            rescued=rescued,
            timestamps=timestamps,
            storage=storage,
        )


def _path(given: str | os.PathLike[str]) -> str:
    """A path as text; refuses a URL that was passed as a `Path`."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str) or not path.strip():
        raise DeclarationError("Files.source() needs a path.", where=caller())
    if path is not given and (scheme := re.match(r"(\w+):/(?!/)", path)):
        message = f"Files.source({given!r}): this is a URL, and pathlib drops one of its slashes."
        url = f"{scheme[1]}://{path[scheme.end() :]}"
        raise DeclarationError(message, where=caller(), fix=f'pass it as text: "{url}".')
    return path


def _format(path: str, format: str | None) -> str:
    """The format of the files under a path; refuses `**`, which Hadoop's globs treat like `*`."""
    if format is not None and format not in FORMATS:
        raise DeclarationError(
            f"Files.source({path!r}): format {format!r} is unknown. {near_miss(format, FORMATS)}",
            where=caller(),
            fix=f'pass format="parquet" (or {", ".join(list(FORMATS)[1:])}).',
        )
    if "**" in path and not os.path.exists(path):
        raise DeclarationError(
            f"Files.source({path!r}): ** matches a single level in Hadoop's globs.",
            where=caller(),
            fix="write the folder, which is read with all folders below it; or write */ for each level.",
        )
    return format or _inferred_format(path)


def _inferred_format(path: str) -> str:
    """The format by the ending of the path, or else by the endings of the files in a local folder."""
    format = format_of(path.rstrip("/").rsplit("/", 1)[-1])
    if format is not None:
        return format
    endings = {ending_of(name) for name in _first_names(path)}
    formats = {ENDINGS[ending] for ending in endings if ending in ENDINGS}
    if len(formats) == 1:
        return formats.pop()
    several = f" Its files are {' and '.join(sorted(formats))}." if formats else ""
    raise DeclarationError(
        f"Files.source({path!r}): the format is not clear from the path.{several}",
        where=caller(),
        fix=f'pass format="parquet" (or {", ".join(list(FORMATS)[1:])}).',
    )


def _first_names(path: str) -> list[str]:
    """The names of the first files of a local folder or glob; empty for any other path."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return []
    local = path.removeprefix("file://").removeprefix("file:")
    return [os.path.basename(file) for file in islice(data_files_below(local), MAX_NAMES)]
