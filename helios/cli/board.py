"""Shows the progress of a run on a terminal.

While the run starts, the terminal shows a bar. Then it shows a live table with a row for each pipeline. When the run
has ended, the terminal lists the data that is not written yet.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from helios.cli.progress import END_STATES, MESSAGE_EVENTS, end_text, longest, unwritten_rows_text, written_text
from helios.metrics.drain import Drain
from helios.model.values import counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Task

    from helios.metrics.endpoint import Observed
    from helios.metrics.metrics import MetricsSnapshot
    from helios.spark.run.events import Event

COLOURS = {"failed": "red", "finished": "green", "running": "cyan", "stopped": "yellow"}
STATES_BY_URGENCY = ("failed", "waiting", "running")
"""If the terminal has too few lines for all pipelines, the rows with these states are shown first."""
RESERVED_LINES = 6
"""The number of terminal lines that are not available for rows of the table."""
CELL_PADDING = 3
"""The number of characters that rich adds to the width of a cell."""


class _Column(NamedTuple):
    name: str
    priority: int
    """On a narrow terminal, the columns with the lowest priority are hidden first."""
    numeric: bool = True


COLUMNS = (
    _Column("pipeline", 99, numeric=False), _Column("state", 98, numeric=False), _Column("batch", 2),
    _Column("rows", 8), _Column("rejected", 5), _Column("rows/s", 7), _Column("behind", 9),
    _Column("time left", 6), _Column("snapshot", 4), _Column("last commit", 3), _Column("elapsed", 1),
)  # fmt: skip


@dataclass
class _Row:
    """One pipeline's row of the live table."""

    state: str = "waiting"
    batch: int | None = None
    rows: int = 0
    rejected: int = 0
    rate: float | None = None
    snapshot: int | None = None
    committed: datetime | None = None
    began: float | None = None
    ended: float | None = None
    behind: str = ""
    drain: Drain = field(default_factory=Drain)

    def update(self, event: Event) -> None:
        self.began = self.began if self.began is not None else time.monotonic()
        if event.kind in END_STATES:
            self.state, self.ended = event.kind, time.monotonic()
        else:
            self.state = event.kind if event.kind in ("idle", "waiting") else "running"
        self.rejected += event.rejected
        self.batch = event.batch if event.batch is not None else self.batch
        self.snapshot = event.snapshot if event.snapshot is not None else self.snapshot
        if event.kind == "batch":
            self.rows += event.rows
            self.rate = event.rows / event.seconds if event.seconds > 0 else None
            self.committed = datetime.now()

    def update_lag(self, figures: MetricsSnapshot) -> None:
        """Updates the amount of unread data in the pipeline's sources."""
        amounts = {
            "record": figures.source_lag_records,
            "file": figures.source_lag_files,
            "snapshot": figures.source_lag_snapshots,
        }
        known = {unit: number for unit, number in amounts.items() if number is not None}
        if not known:
            return
        self.behind = ", ".join(counted(number, unit) for unit, number in known.items() if number) or "no"
        amounts_by_preference = figures.source_lag_records, figures.source_lag_bytes, figures.source_lag_snapshots
        self.drain.add(time.monotonic(), next((number for number in amounts_by_preference if number is not None), 0))

    def cells(self) -> tuple[str, ...]:
        """The texts of all `COLUMNS` except the pipeline's name. The text of an unknown value is empty."""
        elapsed = (self.ended or time.monotonic()) - self.began if self.began is not None else None
        seconds_left = self.drain.seconds_left(time.monotonic()) if self.state not in END_STATES else None
        return (
            self.state,
            "" if self.batch is None else str(self.batch),
            f"{self.rows:,}",
            f"{self.rejected:,}" if self.rejected else "",
            "" if self.rate is None else f"{self.rate:,.0f}" if self.rate >= 10 else f"{self.rate:.1f}",
            self.behind,
            "" if seconds_left is None else f"~{clock(seconds_left)}",
            "" if self.snapshot is None else str(self.snapshot),
            "" if self.committed is None else f"{self.committed:%H:%M:%S}",
            "" if elapsed is None else clock(elapsed),
        )


class Board:
    """A live table on a terminal, one row per pipeline.

    Args:
        observed: The runs, whose metrics contain the lag. The caller adds each run here when the run starts.
        err: Whether to write to standard error instead of standard output.
    """

    def __init__(self, observed: Sequence[Observed] = (), *, err: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=err)
        self._observed = observed
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._lags_read_at = 0.0
        self._ended = False
        self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4)
        self._start_line = _StartLine(self._console)

    def open(self, pipelines: Sequence[str]) -> None:
        self._start_line.end()
        self._rows = {name: _Row() for name in pipelines}
        self._live.start()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def show_wait(self, text: str, usual_seconds: float | None = None) -> None:
        self._start_line.show_wait(text, usual_seconds)

    def emit(self, event: Event) -> None:
        # The other pipelines may continue for days, so a failure is shown now and not only when all have ended.
        others_continue = event.kind == "failed" and len(self._rows) > 1
        if event.message and (others_continue or event.kind in ("waiting", "skipped", "batch", *MESSAGE_EVENTS)):
            self.note(f"{event.pipeline}: {event.message}")
        if unwritten_rows_text(event):
            self.note(f"{event.pipeline}: batch {event.batch}{unwritten_rows_text(event)}")
        with self._lock:
            self._rows[event.pipeline].update(event)

    def close(self, status: Sequence[dict[str, Any]]) -> None:
        self._lags_read_at, self._ended = 0.0, True
        self.hide()
        if len(status) == 1:
            self.note(f"{status[0]['pipeline']}  {end_text(status[0])}")
            return
        states = Counter(str(row["state"]) for row in status)
        counts = ", ".join(f"{number} {state}" for state, number in states.items())
        self.note(f"{counted(len(status), 'pipeline')}: {counts}; {written_text(status)}")
        waiting = [(row["pipeline"], text) for row in status for text in row["left"]]
        if waiting:
            self.note("still waiting:")
        for name, text in waiting:
            self.note(f"  {name.ljust(longest([name for name, _ in waiting]))}  {text}")

    def hide(self) -> None:
        """Restores the terminal."""
        self._start_line.end()
        self._live.stop()

    def _update_lags(self) -> None:
        """Updates the lag in the rows from the metrics of the runs, at most once a second."""
        if time.monotonic() - self._lags_read_at < 1:
            return
        self._lags_read_at = time.monotonic()
        for run in list(self._observed):
            figures = run.metrics().snapshot()
            with self._lock:
                if figures.pipeline in self._rows:
                    self._rows[figures.pipeline].update_lag(figures)

    def _table(self) -> RenderableType:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        self._update_lags()
        with self._lock:
            rows = [(name, *row.cells()) for name, row in self._rows.items()]
        shown_rows, hidden_text = (rows, "") if self._ended else self._rows_that_fit(rows)
        indexes = visible_columns(rows, self._console.width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=hidden_text or None, caption_justify="left")
        for index in indexes:
            column = COLUMNS[index]
            table.add_column(column.name, justify="right" if column.numeric else "left", overflow="fold")
        for row in shown_rows:
            style = COLOURS.get(row[1], "")
            table.add_row(
                *(Text(row[index], style=style if COLUMNS[index].name == "state" else "") for index in indexes)
            )
        return table

    def _rows_that_fit(self, rows: Sequence[tuple[str, ...]]) -> tuple[Sequence[tuple[str, ...]], str]:
        """Returns the rows that fit on the terminal, in the order of the script, and a text that counts the others."""
        max_rows = max(self._console.height - RESERVED_LINES, 1)
        if len(rows) <= max_rows:
            return rows, ""
        urgency = {state: rank for rank, state in enumerate(STATES_BY_URGENCY)}
        order = sorted(range(len(rows)), key=lambda index: urgency.get(rows[index][1], len(urgency)))
        hidden_states = Counter(rows[index][1] for index in order[max_rows:])
        counts = ", ".join(f"{number} {state}" for state, number in hidden_states.items())
        hidden_text = f"and {len(rows) - max_rows:,} more: {counts}"
        return [rows[index] for index in sorted(order[:max_rows])], hidden_text


def visible_columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The indexes of the `COLUMNS` to show: columns with a value in some row, as many as fit into the terminal's width.

    Examples:
        >>> [COLUMNS[index].name for index in visible_columns([("a.b", "running", "3", "12", *[""] * 7)], 30)]
        ['pipeline', 'state', 'rows']
    """
    indexes = [
        index for index in range(len(COLUMNS)) if any(row[index] for row in rows) or COLUMNS[index].priority > 90
    ]
    widths = (
        {index: max(len(COLUMNS[index].name), *(len(row[index]) for row in rows)) for index in indexes} if rows else {}
    )
    while len(indexes) > 2 and sum(widths[index] + CELL_PADDING for index in indexes) > width:
        indexes.remove(min(indexes, key=lambda index: COLUMNS[index].priority))
    return indexes


class _StartLine:
    """The line that is shown while a run starts: what the run waits for, and a bar that fills in the usual time."""

    def __init__(self, console: Any) -> None:
        from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress_bar import ProgressBar

        class Bar(ProgressColumn):
            def render(self, task: Task) -> RenderableType:
                usual_seconds, elapsed = task.fields["usual_seconds"], task.elapsed or 0.0
                known = usual_seconds is not None and elapsed < usual_seconds
                return ProgressBar(
                    total=usual_seconds or 1, completed=elapsed if known else 0, width=20, pulse=not known
                )

        text = TextColumn("{task.description}", markup=False)
        self._bars = Progress(SpinnerColumn(), Bar(), TimeElapsedColumn(), text, console=console, transient=True)
        self._shown = False

    def show_wait(self, text: str, usual_seconds: float | None) -> None:
        for task in self._bars.tasks:
            self._bars.remove_task(task.id)
        self._bars.add_task(text, total=None, usual_seconds=usual_seconds)
        if not self._shown:
            self._shown = True
            self._bars.start()

    def end(self) -> None:
        if self._shown:
            self._shown = False
            self._bars.stop()


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, or as hours, minutes and seconds.

    Examples:
        >>> clock(65), clock(3725)
        ('1:05', '1:02:05')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
