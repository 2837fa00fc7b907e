"""The source of file folders: read once, or followed by a listing and a log of our own.

Each file is known by its path, size and modification time. The log in the checkpoint says which files each batch reads;
a position is a place in it. What is read is what was planned: a file that is gone or changed stops the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.row_stream import RowStream
from helios.sources.common.spark.spans import SpanSource
from helios.sources.files.declare import FilesSource
from helios.sources.files.describe import nothing_there
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.lag import waiting_lag
from helios.sources.files.log import FileLog, Known, known_of, oldest_first
from helios.sources.files.settling import APART, Settling
from helios.sources.files.spark import listing
from helios.sources.files.spark import rows as file_rows
from helios.sources.files.spark.changes import MEANWHILE, PLANNED, READ, changed_error, gone_error, unfinished
from helios.sources.files.spark.kept_columns import KeptColumns
from helios.sources.files.spark.listing import Listed
from helios.sources.files.spark.native import as_they_are
from helios.sources.files.spark.reading import Reading, reading_of
from helios.spark.checkpoint.files import StartEntry
from helios.spark.checkpoint.small_files import small_files
from helios.spark.native.batch import SmallBatch
from helios.spark.native.inputs import SourceFiles
from helios.table.positions import Lag, Position, Span

FRESH = 60.0
"""Seconds for which a listing serves several batches of at most `max_files` files, while files of it wait."""

OBJECTS = ("s3a://", "gs://")


class FilesReader(SpanSource):
    """Files of one format as a `Source`."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        reads = context.plan.reads
        self._number = sum(read.source.streaming for read in reads[:index])
        trigger = context.plan.trigger
        self._max_files = trigger.max_files if trigger is not None else None
        self._settling = Settling(self._source.format)
        self._columns: StructType | None = None
        self._columns_kept = KeptColumns(self._number)
        self._log: FileLog | None = None
        self._at: FolderPosition | None = None
        self._known: Known = {}
        self._unread: Known = {}
        self._listed: tuple[Listed, float] | None = None
        self._frozen: tuple[Listed, frozenset[str]] | None = None
        self._current: tuple[str, list[File]] = "", []
        self._lag: Lag | None = None
        self._read: list[File] = []
        self._looked: tuple[Span | None, Reading | None] = None, None
        self._damaged: dict[File, str] = {}

    @property
    def _source(self) -> FilesSource:
        assert isinstance(self.read_plan.source, FilesSource)
        return self.read_plan.source

    # the listing

    def _look(self) -> Listed:
        """All files under the path.

        Raises:
            NotFound: Nothing is at the path.
        """
        place = self.read_plan.place
        path = place.location if place is not None else self._source.path
        files = listing.found_at(self.context.spark, path, self._source)
        if files is None and self._at is not None and self._at.read and path.startswith(OBJECTS):
            return {}  # a store of objects has no empty folders
        if files is None:
            raise nothing_there(self._source)
        return files

    def _files(self) -> list[File]:
        return listing.as_files(self._look())

    def freeze(self) -> None:
        """Lists the files that are there, and looks again at those that may still be written."""
        files = self._look()
        finished = self._settling.finished(files, time.time())
        if self._settling.undecided(files):
            time.sleep(APART + 0.1)
            files = self._look()
            finished = self._settling.finished(files, time.time())
        self._frozen = files, frozenset(finished)

    def _waiting(self) -> Listed:
        """The files that no batch has planned yet, including changed ones."""
        if self._frozen is not None:
            files, finished = self._frozen
            return {path: stat for path, stat in self._new(files).items() if path in finished}
        if self._listed is not None and self._max_files is not None and time.monotonic() - self._listed[1] < FRESH:
            waiting = self._new(self._listed[0])
            if len(waiting) >= self._max_files:
                return waiting
        began = time.monotonic()
        waiting = self._settling.finished(self._new(self._look()), time.time())
        self._listed = waiting, began
        return waiting

    def _new(self, listed: Listed) -> Listed:
        """Files that are unknown, or have changed.

        Raises:
            RunError: A file that was read has changed, and the source does not reread such files.
        """
        known = self._known
        new = {path: stat for path, stat in listed.items() if known.get(path) != stat}
        # A rejected file that has changed since is repaired.
        changed = [path for path in new if path in known and self._unread.get(path) != known[path]]
        if changed and self._source.changed == "fail":
            raise changed_error(self._source, {path: known[path] for path in changed}, new, READ)
        return new

    # positions

    def first(self) -> Position:
        return FolderPosition(log=self._our_log.location).as_json()

    @property
    def declared(self) -> str:
        """The declared start: a folder is always followed from all that is there."""
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
            assert checkpoint is not None  # a followed source has one
            self._log = FileLog(checkpoint.files, checkpoint.location, self._number)
        return self._log

    def _load(self, position: Position) -> FolderPosition:
        """Loads a position: the files that were read up to it become known."""
        at = FolderPosition.parse(position)
        if self._at is None or (at.entry, at.hash) != (self._at.entry, self._at.hash):
            self._known = self._our_log.load(at, self._other_log(at))
            self._unread = self._our_log.unread()
            self._at = at
        return self._at

    def _other_log(self, at: FolderPosition) -> FileLog | None:
        """The log of another checkpoint, if a place belongs to it."""
        root, _, number = at.log.partition("/helios/files/")
        if at.log == self._our_log.location or not number.isdigit():
            return None
        return FileLog(small_files(self.context.spark, root), root, int(number))

    def latest(self, after: Position) -> Position:
        """The end of the batch after a position; its files are in the log before Spark's log names it."""
        at = self._load(after)
        self._columns_kept.keep(self.context, self._source)
        waiting = self._waiting()
        files = oldest_first(waiting)
        planned = files[: self._max_files]
        self._observe(files[len(planned) :] if planned else files)
        if not planned:
            return after
        self._at = self._our_log.append(at, planned)
        self._known |= {file.path: (file.size, file.modified) for file in planned}
        return self._at.as_json()

    # lag

    def _observe(self, waiting: Sequence[File]) -> None:
        self._lag = waiting_lag([(file.size, file.modified) for file in waiting])
        self.context.observer.lagging(self.index, self._lag)

    def lag(self, at: Position) -> Lag | None:
        """The lag of the last listing after the last planned batch; another listing would cost as much as a batch."""
        return self._lag

    def left(self) -> str:
        files, finished = self._frozen or ({}, frozenset())
        return unfinished(path for path in self._new(files) if path not in finished)

    # what a span reads

    def _planned(self, span: Span) -> list[File]:
        start, end = span.start, span.end
        if end is None or start == end:
            return []
        return self._our_log.files(
            FolderPosition.parse(start).entry if start is not None else 0, FolderPosition.parse(end)
        )

    def _problems(self, files: Sequence[File]) -> tuple[list[File], list[File], Listed]:
        """The files that are gone, those that have changed, and all as they are now."""
        many = len(files) > listing.MANY
        now = self._look() if many else listing.looked_at(self.context.spark, [file.path for file in files])
        gone = [file for file in files if file.path not in now]
        changed = [f for f in files if f.path in now and (f.size, f.modified) != now[f.path]]
        return gone, changed, now

    def lost(self, span: Span) -> bool:
        """True if a planned span must be planned again: files are gone or changed, and the source allows for it."""
        gone, changed, _ = self._problems(self._planned(span))
        repaired = changed and self._our_log.has_failed(
            FolderPosition.parse(span.end or {})
        )  # as the error of the run said
        allowed = not changed or repaired or self._source.changed == "reread"
        return bool(gone or changed) and allowed and (not gone or self._source.missing == "skip")

    def failed(self, span: Span) -> None:
        if span.end is not None and span.end != span.start:
            self._our_log.note_failed(FolderPosition.parse(span.end))

    def give_up(self, span: Span) -> None:
        """Reports the missing files of a span that is planned again."""
        if gone := self._problems(self._planned(span))[0]:
            self.context.observer.files_gone([file.path for file in gone])

    def verified(self, span: Span) -> list[File]:
        """The files of a planned span, which are all there and as they were planned.

        Raises:
            RunError: One is gone or has changed; the message names it.
        """
        files = self._planned(span)
        gone, changed, now = self._problems(files)
        if changed:
            raise changed_error(self._source, known_of(changed), now, PLANNED)
        if gone and self._source.missing == "fail":
            raise gone_error(self._source, [file.path for file in gone])
        if gone:
            self._our_log.note_skipped(FolderPosition.parse(span.end or {}), [file.path for file in gone])
            self._unlist(gone)
            self.context.observer.files_gone([file.path for file in gone])
        return [File(file.path, *now[file.path]) for file in files if file.path in now]

    def _unlist(self, gone: Sequence[File]) -> None:
        """Forgets files that are gone, so that the last listing does not plan them again."""
        for listed in (self._known, *(look[0] for look in (self._frozen, self._listed) if look is not None)):
            for file in gone:
                listed.pop(file.path, None)

    def confirm(self, span: Span) -> None:
        """Refuses rows that were read while a file changed.

        Raises:
            RunError: A file is not any more what was planned.
        """
        files = self._current[1] if self._is_current(span) else self._planned(span)
        _, changed, now = self._problems(files)
        if changed:
            raise changed_error(self._source, known_of(changed), now, MEANWHILE)

    # the folder as it is

    def current(self) -> Span:
        files = self._files()
        digest = listing.digest_of(files)
        self._current = digest, files
        name = self.read_plan.name
        return Span(name, None, {"digest": digest}, {"source": name, "digest": digest})

    def _is_current(self, span: Span) -> bool:
        return span.end is not None and span.end.get("digest") == self._current[0]

    # rows

    def schema(self) -> StructType:
        self._columns = self._columns or self._columns_kept.of(self.context, self._source, self._files())
        return self._columns

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        (looked, reading), self._looked = self._looked, (None, None)
        if reading is None or looked != span:
            reading = self._reading_of(span)
        if reading is None:
            return None
        at = FolderPosition.of(span.end) if span is not None else None
        kept = len(self.context.rejected_input.rejected)
        df = file_rows.rows_of(replace(self.context, spark=spark), self._source, reading, positioned=positioned)
        if at is not None and self.context.rejected_input.unread:
            if self._problems(list(self.context.rejected_input.unread))[
                0
            ]:  # gone since it was verified: missing, and not bad
                del self.context.rejected_input.rejected[kept:]
                return self.read(spark, span, positioned=positioned)
            self._our_log.note_unread(at, self.context.rejected_input.unread)
            self._unread |= known_of(self.context.rejected_input.unread)
        return df

    def _reading_of(self, span: Span | None) -> Reading | None:
        """How the files of a span are read; None if it has none."""
        if span is None:
            files = self._files()
        elif self._is_current(span):
            files = self._current[1]
        else:
            files = self.verified(span)
            if not files:
                return None
        at = FolderPosition.of(span.end) if span is not None else None
        if at is not None and self._source.bad_file == "quarantine":
            self._damaged |= self._our_log.unread_of(at)  # a replay leaves out what the first try did
        self._read = files
        reading = reading_of(self.context, self._source, files, self._damaged)
        return replace(reading, planned=self._planned_at(span, files)) if self._source.metadata else reading

    def _planned_at(self, span: Span | None, files: Sequence[File]) -> dict[str, int]:
        """When the batch of each file was planned, in milliseconds since 1970; of a folder that is read once, now."""
        if span is None or (at := FolderPosition.of(span.end)) is None:
            return dict.fromkeys((file.path for file in files), time.time_ns() // 1_000_000)
        begun = FolderPosition.of(span.start) if span.start is not None else None
        return self._our_log.planned(begun.entry if begun is not None else 0, at)

    def files(self, span: Span) -> SourceFiles:
        """The files of a span, which have passed every check of their columns.

        Raises:
            NotNative: Their rows are not those of the files as they are.
            RunError: A file is gone or has changed.
        """
        reading = self._reading_of(span)
        self._looked = span, reading
        if reading is None:
            raise SmallBatch("a batch has no files")
        return as_they_are(self._source, reading)

    def set_aside(self, named: str) -> bool:
        file = next((file for file in self._read if listing.as_uri(file.path) == named), None)
        if file is None or file in self._damaged:
            return False
        gone, changed, now = self._problems([file])
        if changed and self._source.changed == "reread":
            raise changed_error(self._source, known_of(changed), now, MEANWHILE)
        if gone or changed:  # of a planned span the next look leaves out what is gone
            return bool(gone) and self._source.streaming and self._source.missing == "skip"
        cause = file_rows.damage(self.context, self._source, file) if self._source.bad_file != "fail" else ""
        gone, changed, _ = self._problems([file])
        if not cause or gone or changed:
            return False
        self._damaged[file] = cause
        return True

    def stream(self) -> DataFrame:
        return RowStream(self).df()
