"""Reads facts, commits and the status of pipelines from the tables of a lake, while a page is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from helios.errors import HeliosError
from helios.table.commits import Commit, commits
from helios.table.lease import FILE, is_alive, parse_holder
from helios.table.plans import KeptPlan, plans_of
from helios.table.readers import checkpoints_of
from helios.table.refs import BACKFILL, REPLAY
from helios.table.snapshots import Table
from helios.table.status import Status, statuses
from helios.table.view import View
from helios.ui.facts import TableFacts, TimelineEntry
from helios.ui.history import (
    Summaries,
    batch_page,
    commit_row,
    facts_of,
    quarantines,
    rejected_rows,
    summaries_of,
    table_page,
    timeline_entry,
)

STATUS_EVERY = 5.0
"""The seconds between two reads of the status of the pipelines that write a table."""
REQUESTED_EVERY = 1.0
"""The minimum seconds from a read to another read that a request for an unknown commit causes."""


class PipelineInTable(NamedTuple):
    """The status of a pipeline in a table that it has written.

    Attributes:
        running: Whether a driver of the pipeline is alive; None if that is unknown.
        read_at: When the status was read, by a monotonic clock.
    """

    status: Status
    running: bool | None
    read_at: float


@dataclass
class LoadedTable:
    """A loaded table, with its facts and commits.

    Attributes:
        commits: The commits of main, newest first, without plans.
        indexes: The index in `commits` of each commit, by snapshot id.
        statuses: The status of each pipeline that writes the table.
        read_at: When the statuses were read, by a monotonic clock.
    """

    table: Table
    facts: TableFacts
    commits: list[Commit]
    indexes: dict[int, int]
    summaries: Summaries
    statuses: list[Status] = field(default_factory=list)
    read_at: float = 0.0


class LakeReader:
    """Reads tables in its own thread while a page is open.

    Args:
        load_tables: Loads the tables, in their current state.
        view: Returns the tables and checkpoints from which the status of pipelines is read.
        min_seconds: The minimum seconds between two reads.
        max_share: The maximum share of time that the thread spends reading.
        on_new: Is called with the commits that are new since the last read, oldest first.
        eager: Whether to read once before the first page opens.
    """

    def __init__(
        self,
        load_tables: Callable[[], Iterable[Table]],
        view: Callable[[], View],
        *,
        min_seconds: float,
        max_share: float,
        on_new: Callable[[Sequence[TimelineEntry]], None] = lambda entries: None,
        eager: bool = False,
    ) -> None:
        self._load_tables, self._view, self._on_new = load_tables, view, on_new
        self._min_seconds, self._max_share = min_seconds, max_share
        self._loaded: dict[str, LoadedTable] = {}
        self._running: dict[str, bool | None] = {}
        self._plans: dict[str, Mapping[str, KeptPlan]] = {}
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._pages, self._eager = 0, eager
        self._refreshed = 0.0
        self._wake, self._ended = threading.Event(), threading.Event()
        self.problems: tuple[str, ...] = ()
        self.was_read = False
        self._thread = threading.Thread(target=self._follow, name="helios-ui-lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def add_open_pages(self, count: int) -> None:
        """Adds to the number of open pages; `count` is negative when pages close."""
        with self._lock:
            self._pages += count
        if count > 0:
            self._wake.set()

    # called by the page

    def tables(self) -> list[TableFacts]:
        return [loaded.facts for loaded in list(self._loaded.values())]

    def statuses(self) -> list[PipelineInTable]:
        loaded = list(self._loaded.values())
        return [
            PipelineInTable(status, self._running.get(status.pipeline), table.read_at)
            for table in loaded
            for status in table.statuses
        ]

    def commits(self, table: str, before: str | None, count: int) -> dict[str, Any] | None:
        """Up to `count` commits older than the snapshot `before`, newest first; and the number of all commits."""
        loaded = self._loaded.get(table)
        if loaded is None:
            return None
        start = loaded.indexes.get(_id(before), -1) + 1 if before is not None else 0
        shown = loaded.commits[start : start + count]
        rows = [commit_row(commit, table, loaded.summaries[commit.snapshot]) for commit in shown]
        return {"table": table, "commits": rows, "all": len(loaded.commits), "from": start}

    def batch(self, table: str, snapshot: str) -> dict[str, Any] | None:
        """The page of a commit, with the pipeline's next and previous commit, if at most 500 commits lie between."""
        entry = self._commit(table, snapshot)
        if entry is None:
            return None
        loaded, commit = entry
        index = loaded.indexes[commit.snapshot]
        own = [
            other for other in loaded.commits[max(0, index - 500) : index + 500] if other.pipeline == commit.pipeline
        ]
        at = own.index(commit)
        return {
            **batch_page(commit, loaded.table, loaded.summaries[commit.snapshot], self._plan(commit)),
            "newer": str(own[at - 1].snapshot) if at else None,
            "older": str(own[at + 1].snapshot) if at + 1 < len(own) else None,
        }

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> list[dict[str, Any]] | None:
        """The rejected rows of a commit, for each quarantine of the pipeline."""
        entry = self._commit(table, snapshot)
        if entry is None:
            return None
        loaded, commit = entry
        load = self._view().load
        tables = [load(name) for name in quarantines(loaded.table, commit)]
        return [rejected_rows(quarantine, commit, samples=samples) for quarantine in tables if quarantine is not None]

    def table(self, name: str) -> dict[str, Any] | None:
        loaded = self._loaded.get(name)
        return _page(loaded) if loaded is not None else None

    def _commit(self, table: str, snapshot: str) -> tuple[LoadedTable, Commit] | None:
        loaded = self._loaded.get(table)
        missing = loaded is None or _id(snapshot) not in loaded.indexes
        if missing and time.monotonic() - self._refreshed > REQUESTED_EVERY:
            self.refresh()  # the commit may be newer than the last read
            loaded = self._loaded.get(table)
        index = loaded.indexes.get(_id(snapshot)) if loaded is not None else None
        return (loaded, loaded.commits[index]) if loaded is not None and index is not None else None

    def _plan(self, commit: Commit) -> KeptPlan | None:
        if commit.pipeline is None or commit.steps is None:
            return None
        name = commit.pipeline.removesuffix(REPLAY).removesuffix(BACKFILL)
        if commit.steps not in self._plans.get(name, {}):
            view = self._view()
            declared = [view.checkpoints[name]] if name in view.checkpoints else []
            self._plans[name] = {plan.steps: plan for plan in plans_of(name, view.warehouses, declared)}
        return self._plans[name].get(commit.steps)

    # reading

    def _follow(self) -> None:
        while not self._ended.is_set():
            if not (self._pages or self._eager):
                self._wake.wait()
                self._wake.clear()
                continue
            self._eager = False
            began = time.monotonic()
            try:
                self.refresh()
            except Exception as error:  # any client error: the page shows it, and the next read may succeed
                self.problems = (f"the lake cannot be read: {type(error).__name__}: {error}",)
            took = time.monotonic() - began
            self._ended.wait(max(self._min_seconds, took * (1 / self._max_share - 1)))

    def refresh(self) -> None:
        """Reads the tables that have changed."""
        with self._reading:
            view = self._view()
            problems: list[str] = []
            new: list[TimelineEntry] = []
            seen: set[str] = set()
            try:
                for table in self._load_tables():
                    seen.add(table.name)
                    try:
                        new += self._read(table, view)
                    except HeliosError as error:
                        problems.append(str(error))
            except HeliosError as error:
                problems.append(str(error))  # the catalog is unreachable: the tables that were loaded before stay
            else:
                self._loaded = {name: loaded for name, loaded in self._loaded.items() if name in seen}
            self.problems = tuple(problems)
            self._refreshed = time.monotonic()
            self._on_new(sorted(new, key=lambda entry: entry.at))
            self.was_read = True

    def _read(self, table: Table, view: View) -> list[TimelineEntry]:
        """Reads a table that has changed, and every `STATUS_EVERY` seconds the statuses. Returns the new commits."""
        loaded, new = self._loaded.get(table.name), list[TimelineEntry]()
        if loaded is None or loaded.table.iceberg.metadata_location != table.iceberg.metadata_location:
            all_commits = commits(table)
            indexes = {commit.snapshot: index for index, commit in enumerate(all_commits)}
            fresh = [commit for commit in all_commits if loaded is None or commit.snapshot not in loaded.indexes]
            before = loaded.statuses if loaded is not None else []
            summaries = summaries_of(table)
            loaded = LoadedTable(table, facts_of(table, small=None), all_commits, indexes, summaries, before)
            self._loaded = {**self._loaded, table.name: loaded}
            new = [timeline_entry(commit, table.name, summaries[commit.snapshot]) for commit in fresh]
        if time.monotonic() - loaded.read_at > STATUS_EVERY:
            loaded.statuses = statuses(table, view)
            loaded.read_at = time.monotonic()
            small = max((status.small for status in loaded.statuses), default=None)
            loaded.facts = facts_of(table, small=small if not loaded.facts.quarantine else None)
            for status in loaded.statuses:
                self._running[status.pipeline] = _is_running(status.pipeline, view)
        return new


def _page(loaded: LoadedTable) -> dict[str, Any]:
    return table_page(loaded.table, loaded.facts, loaded.commits, loaded.summaries)


def _is_running(pipeline: str, view: View) -> bool | None:
    """True if a driver is alive on the checkpoint that a script declares for a pipeline; None if that is unknown."""
    declared = view.checkpoints.get(pipeline)
    try:
        folders = checkpoints_of(pipeline, view.warehouses, [declared]) if declared else []
        holders = [parse_holder(folder.text(FILE)) for folder in folders]
    except HeliosError:
        return None
    if not folders:
        return None
    return any(holder is not None and is_alive(holder) for holder in holders)


def _id(snapshot: str | None) -> int:
    return int(snapshot) if snapshot is not None and snapshot.isdecimal() else -1
