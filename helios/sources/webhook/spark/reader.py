"""Reads the stored deliveries of webhooks as a followed folder, and deletes them once they are committed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.errors import InputError
from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.files.declare import FilesSource
from helios.sources.files.durable import sync_folder
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.log import FANOUT
from helios.sources.files.settling import Settling
from helios.sources.files.spark.listing import Listed
from helios.sources.files.spark.reader import FilesReader
from helios.sources.webhook.declare import METADATA, WebhookSource
from helios.sources.webhook.segments import recover, unsealed
from helios.spark.checkpoint.files import StartEntry
from helios.table.positions import Position, Span

READER = ".reader"
"""The file in the folder of segments that names the only pipeline which may read them."""

LONGEST_WAIT = 8.0
"""Seconds that a run with `--once` waits for a receiver to seal its segments; a receiver does so within 5 seconds."""


class FinishedSegments(Settling):
    """Finds the finished segments: all of them, since a segment gets its visible name only when it is complete."""

    @override
    def _is_finished(self, path: str, stat: tuple[int, int], now: float) -> bool:
        return True


class WebhookReader(FilesReader):
    """The reader of stored deliveries."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        os.makedirs(self._webhook.folder, exist_ok=True)
        self._settling = FinishedSegments("json")
        self._last_committed: tuple[int, list[File]] | None = None

    @property
    def _webhook(self) -> WebhookSource:
        assert isinstance(self.read_plan.source, WebhookSource)
        return self.read_plan.source

    @property
    @override
    def _source(self) -> FilesSource:
        return self._webhook.as_files()

    @override
    def schema(self) -> StructType:
        columns = super().schema()
        return StructType([field for field in columns.fields if self._is_visible(field.name)])

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        df = super().read(spark, span, positioned=positioned)
        return df.drop(*(name for name in METADATA if not self._is_visible(name))) if df is not None else None

    def _is_visible(self, name: str) -> bool:
        return name in self._webhook.metadata or name not in METADATA

    # acknowledged deliveries in segments that are not sealed yet

    @override
    def freeze(self) -> None:
        """Waits, up to `LONGEST_WAIT`, until all segments with acknowledged deliveries are sealed; then lists them."""
        unsealed_before, deadline = set(unsealed(self._folder)), time.monotonic() + LONGEST_WAIT
        while not self._recover() and unsealed_before & set(unsealed(self._folder)) and time.monotonic() < deadline:
            time.sleep(0.1)
        super().freeze()

    @override
    def _waiting(self) -> Listed:
        if self._frozen is None:
            self._recover()  # the receiver may have been killed since the run began
        return super()._waiting()

    def _recover(self) -> bool:
        """Seals the segments of a crashed receiver; True if all acknowledged deliveries are in sealed segments."""
        return recover(self._folder, self._webhook.window)

    @property
    def _folder(self) -> Path:
        return Path(self._webhook.folder)

    @override
    def unread_data(self) -> str:
        open_segments = unsealed(self._folder)
        waiting = (
            f"deliveries in {', '.join(open_segments)} of {self._folder}, which a receiver is writing"
            if open_segments
            else ""
        )
        return "; ".join(text for text in (super().unread_data(), waiting) if text)

    @override
    def begin(self) -> StartEntry:
        self._claim()
        return super().begin()

    @override
    def resume(self, entry: StartEntry) -> None:
        self._claim()
        super().resume(entry)

    def _claim(self) -> None:
        """Makes this pipeline the only reader of the segments, since it deletes the deliveries that it has committed.

        Raises:
            InputError: Another pipeline reads these deliveries.
        """
        this_pipeline = f"{self.context.plan.pipeline}\n"
        claim = self._folder / READER
        temporary_file = self._folder / f"{READER}-{os.urandom(4).hex()}"
        try:
            # The link makes the claim appear together with its text: another pipeline never finds an empty claim.
            with temporary_file.open("x", encoding="utf-8") as file:
                file.write(this_pipeline)
            os.link(temporary_file, claim)
        except FileExistsError:
            reader = claim.read_text(encoding="utf-8")
            if reader != this_pipeline:
                raise InputError(
                    f"{self._webhook.label()}: the pipeline {reader.strip()} reads these deliveries, and deletes them "
                    "once they are committed.",
                    where=self._webhook.origin,
                    fix="write the deliveries into one table and follow the table, or receive them at another path; if "
                    f"{reader.strip()} is gone, delete {claim}.",
                ) from None
        finally:
            temporary_file.unlink(missing_ok=True)

    @override
    def committed(self, position: Position) -> None:
        """Deletes the segments of all batches but the last batch, which may be read once more after a crash.

        At the first batch of a run, and then every `FANOUT` batches, the log forgets the deleted segments, too.
        """
        at = FolderPosition.of(position)
        last_entry, deletable = self._last_committed or (None, [])
        if at is None or last_entry == at.entry:
            return
        files = self._our_log.files(at.entry - 1, at)
        trims_log = last_entry is None or at.entry % FANOUT == 0
        if trims_log:
            kept = {file.path for file in files}
            deletable = [file for file in self._our_log.files(-1, at) if file.path not in kept]
        for file in deletable:
            with suppress(FileNotFoundError):
                os.unlink(file.path.removeprefix("file:"))
        self._unlist(deletable)  # no later segment has the same name
        if trims_log:
            # A crash must not undo the deletions: a segment that the log has forgotten would be read again.
            sync_folder(self._webhook.folder)
            self._our_log.forget(at)
        self._last_committed = at.entry, files
