"""Progress of a run: a live table on a terminal, plain lines or JSON elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from helios.spark.run.events import Event

ENDS = ("finished", "stopped", "failed")


class Progress(Protocol):
    """Receives the events of a run, from its threads."""

    def open(self, pipelines: Sequence[str]) -> None:
        """The run starts, with these pipelines."""

    def note(self, text: str) -> None:
        """A message that is not an event of a pipeline."""

    def emit(self, event: Event) -> None:
        """An event of a pipeline."""

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        """The run is over, with this `Runner.status()`."""


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Examples:
        >>> counted(1, "row"), counted(1200, "file"), counted(0, "batch")
        ('1 row', '1,200 files', '0 batches')
    """
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def summary(status: dict[str, Any]) -> str:
    """One pipeline's end in a few words.

    Examples:
        >>> summary({"state": "finished", "batches": 1, "rows": 20, "rejected": 2, "left": ["3 groups wait"]})
        'finished: 1 batch, 20 rows, 2 rejected; 3 groups wait'
    """
    rejected = f", {status['rejected']:,} rejected" if status["rejected"] else ""
    done = f"{status['state']}: {counted(status['batches'], 'batch')}, {counted(status['rows'], 'row')}{rejected}"
    return "; ".join([done, *status["left"]])


def _width(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)


def kept_out(event: Event) -> str:
    """The rows of a batch that are not in the target, as the end of its line; empty without any."""
    late = f"; {counted(event.late, 'late row')} dropped by the watermark" if event.late else ""
    return (f"; {counted(event.rejected, 'row')} rejected" if event.rejected else "") + late


WITH_MESSAGE = ("maintained", "noted", "resumed")
"""Events that are shown by their message."""


@dataclass
class Lines:
    """One line per event, with the local time.

    Args:
        err: Whether to write to standard error.
    """

    err: bool = False

    def __post_init__(self) -> None:
        self._names: Sequence[str] = ()
        self._idle: set[str] = set()

    def open(self, pipelines: Sequence[str]) -> None:
        self._names = pipelines

    def note(self, text: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {text}", err=self.err)

    def emit(self, event: Event) -> None:
        text = self._text(event)
        if event.kind == "idle" and event.pipeline in self._idle and not kept_out(event):
            return  # a quiet source would fill the log
        (self._idle.add if event.kind == "idle" else self._idle.discard)(event.pipeline)
        if text:
            self.note(f"{event.pipeline.ljust(_width(self._names))}  {text}")

    def _text(self, event: Event) -> str:
        if event.kind == "batch":
            written = counted(event.rows, "row")
            if event.snapshot is not None:
                written += f" in {counted(event.files, 'file')}, snapshot {event.snapshot}"
            message = f"; {event.message}" if event.message else ""
            message += kept_out(event)
            return f"batch {event.batch}: {written}, {event.seconds:.1f} s{message}"
        if event.kind == "skipped":
            message = f": {event.message}" if event.message else ""
            return f"batch {event.batch}: in the table already, by snapshot {event.snapshot}{message}{kept_out(event)}"
        if event.kind == "idle":
            return f"batch {event.batch}: no rows{kept_out(event)}"
        if event.kind == "waiting":
            return f"waiting: {event.message}"
        if event.kind in WITH_MESSAGE:
            return event.message
        if event.kind == "failed" and len(self._names) > 1:
            return f"failed: {event.message}"  # the others go on, perhaps for days
        return "" if event.kind in ENDS else event.kind

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        for row in status:
            self.note(f"{row['pipeline'].ljust(_width(self._names))}  {summary(row)}")


@dataclass
class JsonLines:
    """One JSON object per line, with an ISO timestamp in UTC.

    Args:
        err: Whether to write to standard error.
    """

    err: bool = False

    def open(self, pipelines: Sequence[str]) -> None:
        pass

    def note(self, text: str) -> None:
        self._write({"kind": "note", "message": text})

    def emit(self, event: Event) -> None:
        self._write(asdict(event))

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        for row in status:
            self._write({"kind": "summary", **row})

    def _write(self, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        click.echo(json.dumps({"time": now, **fields}), err=self.err)


@dataclass
class _Row:
    """One pipeline's row of the live table."""

    state: str = "waiting"
    batch: int | None = None
    rows: int = 0
    rejected: int = 0
    rate: float | None = None
    committed: datetime | None = None
    began: float | None = None
    ended: float | None = None


class Board:
    """A live table on a terminal, one row per pipeline.

    Args:
        err: Whether the terminal is standard error's.
    """

    def __init__(self, *, err: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=err)
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4)
        self._spinner = self._console.status("")

    def open(self, pipelines: Sequence[str]) -> None:
        self._spinner.stop()
        self._rows = {name: _Row() for name in pipelines}
        self._live.start()

    def note(self, text: str) -> None:
        if self._live.is_started:
            self._console.print(text, markup=False, highlight=False)
        else:
            from rich.text import Text

            self._spinner.update(Text(text))
            self._spinner.start()

    def emit(self, event: Event) -> None:
        if event.message and event.kind in ("waiting", "skipped", "batch", *WITH_MESSAGE):
            self.note(f"{event.pipeline}: {event.message}")
        if kept_out(event):
            self.note(f"{event.pipeline}: batch {event.batch}{kept_out(event)}")
        with self._lock:
            row = self._rows[event.pipeline]
            row.began = row.began if row.began is not None else time.monotonic()
            if event.kind in ENDS:
                row.state, row.ended = event.kind, time.monotonic()
            else:
                row.state = event.kind if event.kind in ("idle", "waiting") else "running"
            row.rejected += event.rejected
            row.batch = event.batch if event.batch is not None else row.batch
            if event.kind == "batch":
                row.rows += event.rows
                row.rate = event.rows / event.seconds if event.seconds > 0 else None
                row.committed = datetime.now()

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        self.hide()
        for row in status:
            self._console.print(
                f"{row['pipeline'].ljust(_width(list(self._rows)))}  {summary(row)}", markup=False, highlight=False
            )

    def hide(self) -> None:
        """Restores the terminal."""
        self._spinner.stop()
        self._live.stop()

    def _table(self) -> RenderableType:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        colours = {"failed": "red", "finished": "green", "running": "cyan", "stopped": "yellow"}
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("pipeline", "state"):
            table.add_column(name)
        for name in ("batch", "rows", "rejected", "rows/s", "last commit", "elapsed"):
            table.add_column(name, justify="right")
        with self._lock:
            for name, row in self._rows.items():
                elapsed = (row.ended or time.monotonic()) - row.began if row.began is not None else None
                table.add_row(
                    Text(name),
                    Text(row.state, style=colours.get(row.state, "")),
                    "" if row.batch is None else str(row.batch),
                    f"{row.rows:,}",
                    f"{row.rejected:,}" if row.rejected else "",
                    "" if row.rate is None else f"{row.rate:,.0f}" if row.rate >= 10 else f"{row.rate:.1f}",
                    "" if row.committed is None else f"{row.committed:%H:%M:%S}",
                    "" if elapsed is None else _clock(elapsed),
                )
        return table


def _clock(seconds: float) -> str:
    """Minutes and seconds, with hours when there are any.

    Examples:
        >>> _clock(65), _clock(3725)
        ('1:05', '1:02:05')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
