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
"""The file that names the pipeline which reads the segments beside it."""


SEALED = 8.0
"""Seconds for which a run that ends waits for a receiver to seal what it has acknowledged: it does so within five."""


class FinishedSegments(Settling):
    """Segments are renamed when they are whole: none is still being written."""

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

    # what a receiver has acknowledged, and not sealed

    @override
    def freeze(self) -> None:
        """Lists the segments that are there, with what was acknowledged until now and is not sealed."""
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
        waits = f"deliveries in {', '.join(hidden)} of {self._folder}, which a receiver is writing" if hidden else ""
        return "; ".join(text for text in (super().left(), waits) if text)

    @override
    def begin(self) -> StartEntry:
        self._claim()
        return super().begin()

    @override
    def resume(self, entry: StartEntry) -> None:
        self._claim()
        super().resume(entry)

    def _claim(self) -> None:
        """Makes this pipeline the only reader: it deletes what it has committed.

        Raises:
            InputError: Another pipeline reads these deliveries.
        """
        mine = f"{self.context.plan.pipeline}\n"
        claim = self._folder / READER
        written = self._folder / f"{READER}-{os.urandom(4).hex()}"
        try:
            # With its text from the first moment on: nobody reads beside a claim without a name.
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
        """Deletes the segments of the batches before; those of the last one may be read once more after a crash.

        Now and then it also deletes what the log has of them.
        """
        at = FolderPosition.of(position)
        if at is None or (self._last is not None and self._last[0] == at.entry):
            return
        last = self._our_log.files(at.entry - 1, at)
        forgets = self._last is None or at.entry % FANOUT == 0
        if self._last is None or forgets:
            kept = {file.path for file in last}
            before = [file for file in self._our_log.files(-1, at) if file.path not in kept]
        else:
            before = self._last[1]
        for file in before:
            with suppress(FileNotFoundError):
                os.unlink(file.path.removeprefix("file:"))
        self._unlist(before)  # their names never come again
        if forgets:
            sync_folder(self._webhook.folder)  # a segment that came back after the log forgot it would be read again
            self._our_log.forget(at)
        self._last = at.entry, last
