"""The source of webhooks: the stored deliveries as a followed folder, deleted once they are committed."""

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
"""The file that names the pipeline which reads the segments of the folder."""

SEALED = 8.0
"""Seconds for which a run with `--once` waits until a receiver has sealed its segments; a receiver does so within 5."""


class FinishedSegments(Settling):
    """Segments get their names when they are whole: a listed segment is never still being written."""

    @override
    def _done(self, path: str, stat: tuple[int, int], now: float) -> bool:
        return True


class WebhookReader(FilesReader):
    """Stored deliveries as a `Source`."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        os.makedirs(self._webhook.folder, exist_ok=True)
        self._settling = FinishedSegments("json")
        self._last: tuple[int, list[File]] | None = None

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
        return StructType([field for field in columns.fields if self._shown(field.name)])

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        df = super().read(spark, span, positioned=positioned)
        return df.drop(*(name for name in METADATA if not self._shown(name))) if df is not None else None

    def _shown(self, name: str) -> bool:
        return name in self._webhook.metadata or name not in METADATA

    # acknowledged deliveries that are not sealed

    @override
    def freeze(self) -> None:
        """Lists the segments, after waiting for those that have acknowledged deliveries and are not sealed."""
        hidden, end = set(unsealed(self._folder)), time.monotonic() + SEALED
        while not self._recovered() and hidden & set(unsealed(self._folder)) and time.monotonic() < end:
            time.sleep(0.1)
        super().freeze()

    @override
    def _waiting(self) -> Listed:
        if self._frozen is None:
            self._recovered()  # the receiver may have been killed since the run began
        return super()._waiting()

    def _recovered(self) -> bool:
        return recover(self._folder, self._webhook.window)

    @property
    def _folder(self) -> Path:
        return Path(self._webhook.folder)

    @override
    def left(self) -> str:
        hidden = unsealed(self._folder)
        waiting = f"deliveries in {', '.join(hidden)} of {self._folder}, which a receiver is writing" if hidden else ""
        return "; ".join(text for text in (super().left(), waiting) if text)

    @override
    def begin(self) -> StartEntry:
        self._claim()
        return super().begin()

    @override
    def resume(self, entry: StartEntry) -> None:
        self._claim()
        super().resume(entry)

    def _claim(self) -> None:
        """Makes this pipeline the only reader, as it deletes the deliveries that it has committed.

        Raises:
            InputError: Another pipeline reads these deliveries.
        """
        mine = f"{self.context.plan.pipeline}\n"
        claim = self._folder / READER
        written = self._folder / f"{READER}-{os.urandom(4).hex()}"
        try:
            # The link makes the claim appear together with its text: another pipeline never finds an empty claim.
            with written.open("x", encoding="utf-8") as file:
                file.write(mine)
            os.link(written, claim)
        except FileExistsError:
            reader = claim.read_text(encoding="utf-8")
            if reader != mine:
                raise InputError(
                    f"{self._webhook.label()}: the pipeline {reader.strip()} reads these deliveries, and deletes them "
                    "once they are committed.",
                    where=self._webhook.origin,
                    fix=f"write them into one table and follow that, or receive them at another path; if that pipeline "
                    f"is gone, delete {claim}.",
                ) from None
        finally:
            written.unlink(missing_ok=True)

    @override
    def committed(self, position: Position) -> None:
        """Deletes the segments of all batches but the last, which may be read once more after a crash.

        At the first batch of a run, and then every `FANOUT` batches, it also deletes their entries in the log.
        """
        at = FolderPosition.of(position)
        last_entry, deletable = self._last or (None, [])
        if at is None or last_entry == at.entry:
            return
        files = self._our_log.files(at.entry - 1, at)
        forgets = last_entry is None or at.entry % FANOUT == 0
        if forgets:
            kept = {file.path for file in files}
            deletable = [file for file in self._our_log.files(-1, at) if file.path not in kept]
        for file in deletable:
            with suppress(FileNotFoundError):
                os.unlink(file.path.removeprefix("file:"))
        self._unlist(deletable)  # their names are never used again
        if forgets:
            # A crash must not undo the deletions: a segment that the log has forgotten would be read again.
            sync_folder(self._webhook.folder)
            self._our_log.forget(at)
        self._last = at.entry, files
