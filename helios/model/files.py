"""`Files.source(...)`: a folder of parquet, csv, json, avro, orc or text files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from glob import glob, has_magic
from itertools import islice
from typing import ClassVar, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import one_of
from helios.model.file_formats import DEFAULT_OPTIONS, ENDINGS, FORMATS, ending_of, format_of, option_name, option_text
from helios.model.flow import Source
from helios.model.values import caller, duration, show_seconds

OnBadRow: TypeAlias = Literal["fail", "quarantine", "drop", "null"]
OnBadFile: TypeAlias = Literal["fail", "quarantine"]
OnMissing: TypeAlias = Literal["fail", "skip"]
OnChange: TypeAlias = Literal["fail", "reread"]
Extra: TypeAlias = Literal["fail", "ignore", "add"]

ON_BAD_ROW = ("fail", "quarantine", "drop", "null")
ON_BAD_FILE = ("fail", "quarantine")
ON_MISSING = ("fail", "skip")
ON_CHANGE = ("fail", "reread")
EXTRA = ("fail", "ignore", "add")

LOOKED_AT = 1000
"""How many files of a local folder are looked at to tell its format from their names."""


@dataclass(frozen=True, kw_only=True)
class FilesSource(Source):
    """Files of one format under a path, read once or followed. Created by `Files.source`."""

    kind: ClassVar[str] = "files"

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    missing: str = "fail"
    changed: str = "fail"
    extra: str = "fail"
    rescued: str | None = None
    bad_row: str = "fail"
    bad_file: str = "fail"

    @property
    def ledger_name(self) -> str:
        return self.path

    @property
    def quarantining(self) -> tuple[str, ...]:
        asked = (("on_bad_row", self.bad_row), ("on_bad_file", self.bad_file))
        return tuple(f'{call}("quarantine")' for call, action in asked if action == "quarantine")

    @property
    def jars(self) -> tuple[str, ...]:
        return FORMATS[self.format].jars

    def incremental(self, poll: float | str | timedelta = 60, *, max_files: int | None = None) -> Self:
        """Follows the folder: the files that are there now, then every new one, each once.

        Args:
            poll: How often to look for new files: seconds, text such as "30s", or a timedelta.
            max_files: The most files of one batch.
        """
        if max_files is not None and (isinstance(max_files, bool) or not isinstance(max_files, int) or max_files < 1):
            raise DeclarationError(f"max_files={max_files!r} must be a positive number.", where=caller())
        return replace(self, poll=duration(poll, "poll"), max_files=max_files)

    def on_missing(self, action: OnMissing) -> Self:
        """What happens when a file that a batch has planned is gone before it is read.

        Args:
            action: "fail" (the default) stops the run, and names the file. "skip" goes on without it: the run tells
                and counts it, and reads it if it comes again.
        """
        return replace(self, missing=one_of(action, ON_MISSING, "on_missing"))

    def on_change(self, action: OnChange) -> Self:
        """What happens when a file has another size or modification time than when it was read or planned.

        Args:
            action: "fail" (the default) stops the run, and names the file. "reread" takes it for a new file, and reads
                it whole.
        """
        return replace(self, changed=one_of(action, ON_CHANGE, "on_change"))

    def option(self, **options: str | float | bool) -> Self:
        """Options of Spark's reader for the format: `.option(sep=";", nullValue="NA", multiLine=True)`.

        Raises:
            DeclarationError: The format has no such option, or Helios does not leave it to Spark.
        """
        where = caller()
        given = {option_name(n, self.format, where): option_text(n, v, where) for n, v in options.items()}
        return replace(self, options=tuple({**dict(self.options), **given}.items()))

    def on_bad_row(self, action: OnBadRow) -> Self:
        """What happens to a row that does not parse, or whose value does not fit the declared type.

        Args:
            action: "fail" (default) stops, with the file, the line and the text. "quarantine" writes the raw line to
                the quarantine of the sink. "drop" leaves the row out and counts it in `records_failed`. "null" keeps
                the row and makes null what does not parse, as Spark does.

        Raises:
            DeclarationError: There is no such action.
        """
        return replace(self, bad_row=one_of(action, ON_BAD_ROW, "on_bad_row"))

    def on_bad_file(self, action: OnBadFile) -> Self:
        """What happens to a file that cannot be read: one that is empty, truncated, or of another format.

        Args:
            action: "fail" (default) stops, with the file and the cause. "quarantine" notes the file in the quarantine
                of the sink, counts it in `records_failed`, and goes on.

        Raises:
            DeclarationError: There is no such action.
        """
        return replace(self, bad_file=one_of(action, ON_BAD_FILE, "on_bad_file"))

    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader, defaults included."""
        return {**dict(DEFAULT_OPTIONS.get(self.format, ())), **dict(self.options)}

    def flag(self, option: str, default: bool = False) -> bool:
        """Whether an option of the reader is true."""
        return self.reader_options().get(option, str(default)).lower() == "true"

    def label(self) -> str:
        followed = f".incremental(poll={show_seconds(self.poll)})" if self.poll is not None else ""
        return f"Files.source({self.path}, {self.format}){followed}"


class Files:
    """Folders of files as sources."""

    @staticmethod
    def source(
        path: str,
        format: str | None = None,
        *,
        schema: str | Mapping[str, str] | None = None,
        extra: Extra = "fail",
        rescued: str | None = None,
    ) -> FilesSource:
        """Files under a path; by default all of them, once. Columns go by name, from each file's footer or header.

        Args:
            path: A file, a folder or a glob, local or with a scheme that Spark can read. Folders such as
                `day=2026-01-01` below it become columns.
            format: parquet, csv, json, avro, orc or text; by default taken from the ending of the path, or of the files
                in a local folder.
            schema: Columns and Spark SQL types, as text ("id bigint, day date") or a mapping: these columns are read,
                and one that a file lacks is null, or an error under `.evolve_schema("strict")`. By default files name
                their own, and Spark infers the types of csv and json.
            extra: What happens to columns of a file that the declared schema does not have: "fail" stops and names
                them, "ignore" leaves them out, "add" reads them too.
            rescued: The name of a column that keeps such columns, as JSON.

        Raises:
            DeclarationError: The format is unknown or not clear, or `extra` and `rescued` do not fit.
        """
        if not isinstance(path, str) or not path.strip():
            raise DeclarationError("Files.source() needs a path.", where=caller())
        if format is not None and format not in FORMATS:
            raise DeclarationError(
                f"Files.source({path!r}): format {format!r} is unknown. {near_miss(format, FORMATS)}",
                where=caller(),
                fix=f'pass format="parquet" (or {", ".join(list(FORMATS)[1:])}).',
            )
        chosen = format or _told(path)
        one_of(extra, EXTRA, "extra")
        if schema is None and (rescued is not None or extra != "fail"):
            what = "rescued=" if rescued is not None else "extra="
            raise DeclarationError(
                f"Files.source({path!r}): {what} is about columns beside a declared schema, and there is none.",
                where=caller(),
                fix=f"pass schema=, or leave {what} out.",
            )
        ddl = ", ".join(f"`{n}` {t}" for n, t in schema.items()) if isinstance(schema, Mapping) else schema
        tabs = (("sep", "\t"),) if ending_of(path.rsplit("/", 1)[-1]) == "tsv" else ()
        return FilesSource(path=path, format=chosen, declared_schema=ddl, options=tabs, extra=extra, rescued=rescued)


def _told(path: str) -> str:
    """The format that a path tells, or else the files of a local folder."""
    told = format_of(path.rstrip("/").rsplit("/", 1)[-1])
    if told is not None:
        return told
    found = {ending_of(name) for name in _names(path)}
    formats = {ENDINGS[ending] for ending in found if ending in ENDINGS}
    if len(formats) == 1:
        return formats.pop()
    seen = f" Its files are {' and '.join(sorted(formats))}." if formats else ""
    raise DeclarationError(
        f"Files.source({path!r}): the format is not clear from the path.{seen}",
        where=caller(),
        fix=f'pass format="parquet" (or {", ".join(list(FORMATS)[1:])}).',
    )


def _names(path: str) -> list[str]:
    """The names of the first files of a local folder or glob."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return []
    local = path.removeprefix("file://").removeprefix("file:")
    roots = glob(local) if has_magic(local) else [local]
    walked = (
        name
        for root in roots
        for name in ([os.path.basename(root)] if os.path.isfile(root) else _below(root))
        if not name.startswith((".", "_"))
    )
    return list(islice(walked, LOOKED_AT))


def _below(folder: str) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in sorted(names)]
