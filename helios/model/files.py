"""`Files.source(...)`: a folder of parquet, csv or json files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import one_of
from helios.model.flow import Source
from helios.model.values import caller, duration, show_seconds

FORMATS = ("parquet", "csv", "json")
T = TypeVar("T")

OnMissing: TypeAlias = Literal["fail", "skip"]
OnChange: TypeAlias = Literal["fail", "reread"]
DEFAULT_OPTIONS = {"csv": (("header", "true"),)}


@dataclass(frozen=True, kw_only=True)
class FilesSource(Source):
    """Files of one format under a path, read once or followed. Created by `Files.source`."""

    kind: ClassVar[str] = "files"

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    missing: str = "fail"
    changed: str = "fail"

    @property
    def ledger_name(self) -> str:
        return self.path

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
        return replace(self, missing=one_of(action, ("fail", "skip"), "on_missing"))

    def on_change(self, action: OnChange) -> Self:
        """What happens when a file has another size or modification time than when it was read or planned.

        Args:
            action: "fail" (the default) stops the run, and names the file. "reread" takes it for a new file, and reads
                it whole.
        """
        return replace(self, changed=one_of(action, ("fail", "reread"), "on_change"))

    def option(self, **options: str) -> Self:
        """Options of Spark's reader for the format: `.option(sep=";", nullValue="NA")`."""
        return replace(self, options=tuple({**dict(self.options), **options}.items()))

    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader, defaults included."""
        return {**dict(DEFAULT_OPTIONS.get(self.format, ())), **dict(self.options)}

    def label(self) -> str:
        followed = f".incremental(poll={show_seconds(self.poll)})" if self.poll is not None else ""
        return f"Files.source({self.path}, {self.format}){followed}"


class Files:
    """Folders of files as sources."""

    @staticmethod
    def source(path: str, format: str | None = None, *, schema: str | Mapping[str, str] | None = None) -> FilesSource:
        """Files under a path; by default all of them, once.

        Args:
            path: A file, a folder or a glob, local or with a scheme that Spark can read.
            format: parquet, csv or json; by default taken from the ending of the path.
            schema: Columns and Spark SQL types, as text ("id bigint, day date") or a mapping. By default parquet files
                name their own, and Spark infers those of csv and json when the run starts.

        Raises:
            DeclarationError: The format is unknown, or not clear from the path.
        """
        if not isinstance(path, str) or not path.strip():
            raise DeclarationError("Files.source() needs a path.", where=caller())
        ending = path.rsplit("/", 1)[-1].removesuffix(".gz").rpartition(".")[2].rstrip("*").lower()
        chosen = format or ending
        if chosen not in FORMATS:
            raise DeclarationError(
                f"Files.source({path!r}): format {format!r} is unknown. {near_miss(chosen, FORMATS)}"
                if format
                else f"Files.source({path!r}): the format is not clear from the path.",
                where=caller(),
                fix=f'pass format="parquet" (or {", ".join(FORMATS[1:])}).',
            )
        ddl = ", ".join(f"`{n}` {t}" for n, t in schema.items()) if isinstance(schema, Mapping) else schema
        return FilesSource(path=path, format=chosen, declared_schema=ddl)
