"""Reads folders of files. A folder is read once, or is followed by means of listings and a log in the checkpoint.

A file is identified by its path, size and modification time. The log says which files each batch reads, and a position
refers to an entry of the log. A batch reads exactly its planned files. By default, a file that is gone or has changed
stops the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.spans import SpanSource
from helios.sources.files.declare import FilesSource
from helios.sources.files.describe import nothing_there_error
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.lag import waiting_lag
from helios.sources.files.log import FileLog, FileStats, oldest_first, stats_of
from helios.sources.files.settling import LISTING_INTERVAL, Settling
from helios.sources.files.spark import listing
from helios.sources.files.spark import rows as file_rows
from helios.sources.files.spark.changes import MEANWHILE, PLANNED, READ, changed_error, gone_error, unfinished_text
from helios.sources.files.spark.kept_columns import KeptColumns
from helios.sources.files.spark.listing import Listed
from helios.sources.files.spark.native import folder_files
from helios.sources.files.spark.reading import Reading, reading_of
from helios.spark.checkpoint.files import StartEntry
from helios.spark.checkpoint.small_files import small_files
from helios.spark.native.batch import SmallBatch
from helios.spark.native.inputs import SourceFiles
from helios.table.positions import Lag, Position, Span

LISTING_LIFETIME = 60.0
"""The seconds for which batches use the same listing, as long as it has enough files for a batch of `max_files`."""

OBJECT_STORES = ("s3a://", "gs://")


class FilesReader(SpanSource):
    """The reader of files of one format."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        reads = context.plan.reads
        self._number = sum(read.source.streaming for read in reads[:index])
        trigger = context.plan.trigger
        self._max_files = trigger.max_files if trigger is not None else None
        self._settling = Settling(self._source.format)
        self._columns: StructType | None = None
        self._kept_columns = KeptColumns(self._number)
        self._log: FileLog | None = None
        self._at: FolderPosition | None = None  # the position for which `_known` and `_unreadable` are valid
        self._known: FileStats = {}
        self._unreadable: FileStats = {}
        self._listed: tuple[Listed, float] | None = None  # the waiting files of the last listing, and its time
        self._frozen: tuple[Listed, frozenset[str]] | None = None  # for `--once`: all files, and the finished files
        self._current: tuple[str, list[File]] = "", []  # the digest and the files of a folder that is read once
        self._lag: Lag | None = None
        self._last_read: list[File] = []
        self._next_reading: tuple[Span | None, Reading | None] = None, None  # computed by `files`, for the next `read`
        self._damaged: dict[File, str] = {}

    @property
    def _source(self) -> FilesSource:
        assert isinstance(self.read_plan.source, FilesSource)
        return self.read_plan.source

    # the listing

    def _list(self) -> Listed:
        """All files under the path. Raises `NotFound` if nothing is there."""
        folder = self.read_plan.store_folder
        path = folder.location if folder is not None else self._source.path
        files = listing.list_source(self.context.spark, path, self._source)
        if files is None and self._at is not None and self._at.read and path.startswith(OBJECT_STORES):
            return {}  # an object store has no empty folders
        if files is None:
            raise nothing_there_error(self._source)
        return files

    def _files(self) -> list[File]:
        return listing.as_files(self._list())

    def freeze(self) -> None:
        """Lists the files for the whole run. Lists them a second time if some may still be written."""
        files = self._list()
        finished = self._settling.finished(files, time.time())
        if self._settling.undecided(files):
            time.sleep(LISTING_INTERVAL + 0.1)
            files = self._list()
            finished = self._settling.finished(files, time.time())
        self._frozen = files, frozenset(finished)

    def _waiting(self) -> Listed:
        """The finished files that are not planned yet, including changed files."""
        if self._frozen is not None:
            files, finished = self._frozen
            return {path: stat for path, stat in self._new(files).items() if path in finished}
        now = time.monotonic()
        if self._listed is not None and self._max_files is not None:
            listed, listed_at = self._listed
            waiting = self._new(listed) if now - listed_at < LISTING_LIFETIME else {}
            if len(waiting) >= self._max_files:
                return waiting
        waiting = self._settling.finished(self._new(self._list()), time.time())
        self._listed = waiting, now
        return waiting

    def _new(self, listed: Listed) -> Listed:
        """The listed files that no batch has planned, including files that have changed since they were planned.

        Raises:
            RunError: A file that was read has changed, and the source does not reread such files.
        """
        known = self._known
        new = {path: stat for path, stat in listed.items() if known.get(path) != stat}
        # A file that could not be read may change, since the user may repair it.
        changed = [path for path in new if path in known and self._unreadable.get(path) != known[path]]
        if changed and self._source.changed == "fail":
            raise changed_error(self._source, {path: known[path] for path in changed}, new, READ)
        return new

    # positions

    def first(self) -> Position:
        return FolderPosition(log=self._our_log.location).as_json()

    @property
    def declared(self) -> str:
        """The declared start. A followed folder always starts with all present files."""
        return "current"

    def resume(self, entry: StartEntry) -> None:
        super().resume(entry)
        if not self._checkpoint_has_batches:
            self._load(entry["place"])

    @property
    def _checkpoint_has_batches(self) -> bool:
        assert self.context.checkpoint is not None
        return bool(self.context.checkpoint.batches("offsets"))

    @property
    def _our_log(self) -> FileLog:
        if self._log is None:
            checkpoint = self.context.checkpoint
            assert checkpoint is not None  # a followed source has a checkpoint
            self._log = FileLog(checkpoint.files, checkpoint.location, self._number)
        return self._log

    def _load(self, position: Position) -> FolderPosition:
        """Loads the files that were read up to a position into `_known` and `_unreadable`."""
        at = FolderPosition.parse(position)
        if self._at is None or (at.entry, at.hash) != (self._at.entry, self._at.hash):
            self._known = self._our_log.load(at, self._other_log(at))
            self._unreadable = self._our_log.unreadable()
            self._at = at
        return self._at

    def _other_log(self, at: FolderPosition) -> FileLog | None:
        """The log to which a position refers, if it is the log of another checkpoint; otherwise None."""
        root, _, number = at.log.partition("/helios/files/")
        if at.log == self._our_log.location or not number.isdigit():
            return None
        return FileLog(small_files(self.context.spark, root), root, int(number))

    def latest(self, after: Position) -> Position:
        """Plans the next batch and returns its end. The batch is in our log before its end is in Spark's offset log."""
        at = self._load(after)
        self._kept_columns.keep(self.context, self._source)
        waiting = oldest_first(self._waiting())
        planned = waiting[: self._max_files]
        self._report_lag(waiting[len(planned) :])
        if not planned:
            return after
        self._at = self._our_log.append(at, planned)
        self._known |= stats_of(planned)
        return self._at.as_json()

    # lag

    def _report_lag(self, waiting: Sequence[File]) -> None:
        """Reports the lag: the files that wait after the planned batch."""
        self._lag = waiting_lag([(file.size, file.modified) for file in waiting])
        self.context.observer.lagging(self.index, self._lag)

    def lag(self, at: Position) -> Lag | None:
        """The lag at the last listing. A new listing could take as long as a batch."""
        return self._lag

    def unread_data(self) -> str:
        files, finished = self._frozen or ({}, frozenset())
        return unfinished_text(path for path in self._new(files) if path not in finished)

    # the files of a span

    def _planned(self, span: Span) -> list[File]:
        start, end = span.start, span.end
        if end is None or start == end:
            return []
        first = FolderPosition.parse(start).entry if start is not None else 0
        return self._our_log.files(first, FolderPosition.parse(end))

    def _gone_and_changed(self, files: Sequence[File]) -> tuple[list[File], list[File], Listed]:
        """The files that are gone, those that have changed, and the present size and time of those that still exist."""
        many = len(files) > listing.MANY
        now = self._list() if many else listing.list_files(self.context.spark, [file.path for file in files])
        gone = [file for file in files if file.path not in now]
        changed = [file for file in files if file.path in now and (file.size, file.modified) != now[file.path]]
        return gone, changed, now

    def lost(self, span: Span) -> bool:
        """True if a planned span must be planned again.

        This is the case if files are gone or have changed, and the source allows that. Changed files that the source
        does not allow are planned again only after a run has failed on the span.
        """
        gone, changed, _ = self._gone_and_changed(self._planned(span))
        if gone and self._source.missing != "skip":
            return False
        if changed and self._source.changed != "reread":
            # After a failed run, the user may have repaired the files, as the error advised.
            return self._our_log.has_failed(FolderPosition.parse(span.end or {}))
        return bool(gone or changed)

    def failed(self, span: Span) -> None:
        if span.end is not None and span.end != span.start:
            self._our_log.note_failed(FolderPosition.parse(span.end))

    def give_up(self, span: Span) -> None:
        """Reports the files that are gone, before the span is planned again."""
        gone, _, _ = self._gone_and_changed(self._planned(span))
        if gone:
            self.context.observer.files_gone([file.path for file in gone])

    def verified(self, span: Span) -> list[File]:
        """The files of a planned span, after a check that none has changed.

        Files that are gone are left out if the source skips missing files.

        Raises:
            RunError: A file has changed, or is gone and must not be skipped.
        """
        files = self._planned(span)
        gone, changed, now = self._gone_and_changed(files)
        if changed:
            raise changed_error(self._source, stats_of(changed), now, PLANNED)
        if gone and self._source.missing == "fail":
            raise gone_error(self._source, [file.path for file in gone])
        if gone:
            self._our_log.note_skipped(FolderPosition.parse(span.end or {}), [file.path for file in gone])
            self._unlist(gone)
            self.context.observer.files_gone([file.path for file in gone])
        return [File(file.path, *now[file.path]) for file in files if file.path in now]

    def _unlist(self, gone: Sequence[File]) -> None:
        """Removes files that are gone from the known files, and from the listings, which would plan them again."""
        frozen, _ = self._frozen or ({}, None)
        listed, _ = self._listed or ({}, None)
        for file in gone:
            for files in (self._known, frozen, listed):
                files.pop(file.path, None)

    def confirm(self, span: Span) -> None:
        """Raises RunError if a file of a span has changed while the batch was read."""
        _, current = self._current
        _, changed, now = self._gone_and_changed(current if self._is_current(span) else self._planned(span))
        if changed:
            raise changed_error(self._source, stats_of(changed), now, MEANWHILE)

    # the present folder

    def current(self) -> Span:
        files = self._files()
        digest = listing.digest_of(files)
        self._current = digest, files
        name = self.read_plan.name
        return Span(name, None, {"digest": digest}, {"source": name, "digest": digest})

    def _is_current(self, span: Span) -> bool:
        digest, _ = self._current
        return span.end is not None and span.end.get("digest") == digest

    # rows

    def schema(self) -> StructType:
        self._columns = self._columns or self._kept_columns.of(self.context, self._source, self._files())
        return self._columns

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        (read_span, reading), self._next_reading = self._next_reading, (None, None)
        if reading is None or read_span != span:
            reading = self._reading_of(span)
        if reading is None:
            return None
        at = FolderPosition.of(span.end) if span is not None else None
        rejected_input = self.context.rejected_input
        rejected_before = len(rejected_input.rejected_rows)
        df = file_rows.rows_of(replace(self.context, spark=spark), self._source, reading, positioned=positioned)
        if at is not None and rejected_input.unreadable:
            gone, _, _ = self._gone_and_changed(list(rejected_input.unreadable))
            if gone:  # a file disappeared after the check, so it is missing and not unreadable
                del rejected_input.rejected_rows[rejected_before:]
                return self.read(spark, span, positioned=positioned)
            self._our_log.note_unreadable(at, rejected_input.unreadable)
            self._unreadable |= stats_of(rejected_input.unreadable)
        return df

    def _reading_of(self, span: Span | None) -> Reading | None:
        """Decides how the files of a span are read; None if the span has no files."""
        if span is None:
            files = self._files()
        elif self._is_current(span):
            _, files = self._current
        else:
            files = self.verified(span)
            if not files:
                return None
        at = FolderPosition.of(span.end) if span is not None else None
        if at is not None and self._source.bad_file == "quarantine":
            # A batch that is read a second time leaves out the same files.
            self._damaged |= self._our_log.unreadable_of(at)
        self._last_read = files
        reading = reading_of(self.context, self._source, files, self._damaged)
        return replace(reading, planned_at=self._planned_at(span, files)) if self._source.metadata else reading

    def _planned_at(self, span: Span | None, files: Sequence[File]) -> dict[str, int]:
        """When the batch of each file was planned, in ms since 1970; without a log, the current time."""
        end = FolderPosition.of(span.end) if span is not None else None
        if span is None or end is None:
            return dict.fromkeys((file.path for file in files), time.time_ns() // 1_000_000)
        start = FolderPosition.of(span.start) if span.start is not None else None
        return self._our_log.planned_times(start.entry if start is not None else 0, end)

    def files(self, span: Span) -> SourceFiles:
        """The files of a span for the columnar engine, after their columns are checked.

        Raises:
            NotNative: The engine cannot read the files exactly as Spark does.
            RunError: A file is gone or has changed.
        """
        reading = self._reading_of(span)
        self._next_reading = span, reading
        if reading is None:
            raise SmallBatch("a batch has no files")
        return folder_files(self._source, reading)

    def set_aside(self, file_uri: str) -> bool:
        file = next((file for file in self._last_read if listing.as_uri(file.path) == file_uri), None)
        if file is None or file in self._damaged:
            return False
        gone, changed, now = self._gone_and_changed([file])
        if changed and self._source.changed == "reread":
            raise changed_error(self._source, stats_of(changed), now, MEANWHILE)
        if gone or changed:  # if the source skips missing files, the next attempt leaves the file out
            return bool(gone) and self._source.streaming and self._source.missing == "skip"
        cause = file_rows.read_failure(self.context, self._source, file) if self._source.bad_file != "fail" else ""
        gone, changed, _ = self._gone_and_changed([file])
        if not cause or gone or changed:
            return False
        self._damaged[file] = cause
        return True
