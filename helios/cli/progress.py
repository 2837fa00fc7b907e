"""Shows the progress of a run as plain lines or JSON. On a terminal, `helios.cli.board` shows it as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from helios.model.values import counted

if TYPE_CHECKING:
    from helios.spark.run.events import Event

END_STATES = ("finished", "stopped", "failed")


class Progress(Protocol):
    """Shows the progress of a run. The threads of the run call these methods."""

    def open(self, pipelines: Sequence[str]) -> None:
        """Shows that the run begins, with these pipelines."""

    def note(self, text: str) -> None:
        """Shows a message that is not an event of a pipeline."""

    def show_wait(self, text: str, usual_seconds: float | None = None) -> None:
        """Shows what the start of the run waits for; `usual_seconds` is the usual time, None if it is unknown."""

    def hide(self) -> None:
        """Restores the terminal if the run does not begin."""

    def emit(self, event: Event) -> None:
        """Shows an event of a pipeline."""

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        """Shows how the run has ended: `status` is the result of `Runner.status()`."""


def end_text(status: dict[str, Any]) -> str:
    """A text that says how a pipeline ended.

    Examples:
        >>> end_text({"state": "finished", "batches": 1, "rows": 20, "rejected": 2, "left": ["3 groups wait"]})
        'finished: 1 batch, 20 rows, 2 rejected; 3 groups wait'
    """
    return "; ".join([f"{status['state']}: {written_text([status])}", *status["left"]])


def written_text(statuses: Sequence[dict[str, Any]]) -> str:
    """A text that counts the batches and rows that pipelines have written. Batches without rows are not counted.

    Examples:
        >>> written_text([{"batches": 2, "rows": 20, "rejected": 0}, {"batches": 0, "rows": 0, "rejected": 1}])
        '2 batches, 20 rows, 1 rejected'
        >>> written_text([{"batches": 0, "rows": 0, "rejected": 0}])
        'nothing written'
    """
    batches, rows, rejected = (sum(status[name] for status in statuses) for name in ("batches", "rows", "rejected"))
    text = f"{counted(batches, 'batch')}, {counted(rows, 'row')}" if batches else "nothing written"
    return text + (f", {rejected:,} rejected" if rejected else "")


def longest(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)


def unwritten_rows_text(event: Event) -> str:
    """A text that counts the rejected and dropped rows of a batch; it is empty if there are none."""
    late = f"; {counted(event.late, 'late row')} dropped by the watermark" if event.late else ""
    return (f"; {counted(event.rejected, 'row')} rejected" if event.rejected else "") + late


MESSAGE_EVENTS = ("maintained", "noted", "resumed")
"""The kinds of events for which only the message is shown."""


@dataclass
class Lines:
    """Prints one line for each event, with the local time; with `err`, to standard error."""

    err: bool = False

    def __post_init__(self) -> None:
        self._names: Sequence[str] = ()
        self._idle: set[str] = set()

    def open(self, pipelines: Sequence[str]) -> None:
        self._names = pipelines

    def note(self, text: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {text}", err=self.err)

    def show_wait(self, text: str, usual_seconds: float | None = None) -> None:
        self.note(text)

    def hide(self) -> None:
        """Nothing to restore."""

    def emit(self, event: Event) -> None:
        text = self._text(event)
        if event.kind == "idle" and event.pipeline in self._idle and not unwritten_rows_text(event):
            return  # otherwise a quiet source would fill the log
        (self._idle.add if event.kind == "idle" else self._idle.discard)(event.pipeline)
        if text:
            self.note(f"{event.pipeline.ljust(longest(self._names))}  {text}")

    def _text(self, event: Event) -> str:
        if event.kind == "batch":
            written = counted(event.rows, "row")
            if event.snapshot is not None:
                written += f" in {counted(event.files, 'file')}, snapshot {event.snapshot}"
            message = f"; {event.message}" if event.message else ""
            message += unwritten_rows_text(event)
            return f"batch {event.batch}: {written}, {event.seconds:.1f} s{message}"
        if event.kind == "skipped":
            message = (f": {event.message}" if event.message else "") + unwritten_rows_text(event)
            return f"batch {event.batch}: in the table already, by snapshot {event.snapshot}{message}"
        if event.kind == "idle":
            return f"batch {event.batch}: no rows{unwritten_rows_text(event)}"
        if event.kind == "waiting":
            return f"waiting: {event.message}"
        if event.kind in MESSAGE_EVENTS:
            return event.message
        if event.kind == "failed" and len(self._names) > 1:
            return f"failed: {event.message}"  # the other pipelines continue, perhaps for days
        return "" if event.kind in END_STATES else event.kind

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        for row in status:
            self.note(f"{row['pipeline'].ljust(longest(self._names))}  {end_text(row)}")


@dataclass
class JsonLines:
    """Prints one JSON object for each event, with an ISO timestamp in UTC; with `err`, to standard error."""

    err: bool = False

    def open(self, pipelines: Sequence[str]) -> None:
        pass

    def note(self, text: str) -> None:
        self._write({"kind": "note", "message": text})

    def show_wait(self, text: str, usual_seconds: float | None = None) -> None:
        self.note(text)

    def hide(self) -> None:
        """Nothing to restore."""

    def emit(self, event: Event) -> None:
        self._write(asdict(event))

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        for row in status:
            self._write({"kind": "summary", **row})

    def _write(self, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        click.echo(json.dumps({"time": now, **fields}), err=self.err)
