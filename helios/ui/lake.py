"""Tables as a lake has them, read again while a page is open: their facts, commits, and the status of pipelines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from helios.errors import HeliosError
from helios.table.commits import Commit, commits
from helios.table.lease import FILE, alive
from helios.table.lease import parse as parse_lease
from helios.table.plans import KeptPlan, plans_of
from helios.table.readers import checkpoints_of
from helios.table.refs import BACKFILL, REPLAY
from helios.table.snapshots import Table
from helios.table.status import Status, statuses
from helios.table.view import View
from helios.ui.facts import Happening, TableFacts
from helios.ui.history import (
    Summaries,
    batch_page,
    facts_of,
    happening,
    quarantines,
    rejected,
    row,
    summaries_of,
    table_page,
)

STATUS_EVERY = 5.0
"""Seconds after which the lag of a table that has not changed is looked at again."""
ASKED_EVERY = 1.0
"""Seconds between two looks that requests may cause by asking for a commit that is not known."""


class Written(NamedTuple):
    """A pipeline in a table.

    Attributes:
        status: Its status.
        running: Whether a driver of it is alive; None where that is unknown.
        looked: When the status was read, by a monotonic clock.
    """

    status: Status
    running: bool | None
    looked: float


@dataclass
class Known:
    """A table, and what was read of it.

    Attributes:
        table: The table, as it was loaded.
        facts: Its facts.
        commits: The commits of its main, newest first, without plans.
        places: The index of each commit by its snapshot.
        summaries: The summaries of its snapshots.
        statuses: The pipelines that write it.
        looked: When the statuses were read, by a monotonic clock.
    """

    table: Table
    facts: TableFacts
    commits: list[Commit]
    places: dict[int, int]
    summaries: Summaries
    statuses: list[Status] = field(default_factory=list)
    looked: float = 0.0


class Lake:
    """Reads tables in a thread of its own, while a page is open.

    Args:
        look: Loads the tables.
        view: The places from which the status of pipelines is read.
        least: Seconds between two looks at least.
        share: The part of its time that the thread may work.
        found: Receives the commits that are new since the last look, oldest first.
        eager: Whether to look once before a page is open.
    """

    def __init__(
        self,
        look: Callable[[], Iterable[Table]],
        view: Callable[[], View],
        *,
        least: float,
        share: float,
        found: Callable[[Sequence[Happening]], None] = lambda happenings: None,
        eager: bool = False,
    ) -> None:
        self._look, self._view, self._found = look, view, found
        self._least, self._share = least, share
        self._known: dict[str, Known] = {}
        self._running: dict[str, bool | None] = {}
        self._plans: dict[str, Mapping[str, KeptPlan]] = {}
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._pages, self._eager = 0, eager
        self._refreshed = 0.0
        self._wake, self._ended = threading.Event(), threading.Event()
        self.problems: tuple[str, ...] = ()
        self.looked = False
        self._thread = threading.Thread(target=self._follow, name="helios-ui-lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def watched(self, by: int) -> None:
        """So many more pages are open, or fewer."""
        with self._lock:
            self._pages += by
        if by > 0:
            self._wake.set()

    # what was read

    def tables(self) -> list[TableFacts]:
        return [known.facts for known in list(self._known.values())]

    def statuses(self) -> list[Written]:
        """The pipelines in each table."""
        known = list(self._known.values())
        return [Written(s, self._running.get(s.pipeline), one.looked) for one in known for s in one.statuses]

    def commits(self, table: str, before: str | None, count: int) -> dict[str, Any] | None:
        """A page of commits behind a snapshot, newest first, and how many there are in all."""
        known = self._known.get(table)
        if known is None:
            return None
        start = known.places.get(_id(before), -1) + 1 if before is not None else 0
        shown = known.commits[start : start + count]
        rows = [row(commit, table, known.summaries[commit.snapshot]) for commit in shown]
        return {"table": table, "commits": rows, "all": len(known.commits), "from": start}

    def batch(self, table: str, snapshot: str) -> dict[str, Any] | None:
        """The page of a commit, with its neighbours of the same pipeline."""
        found = self._commit(table, snapshot)
        if found is None:
            return None
        known, commit = found
        place = known.places[commit.snapshot]
        own = [one for one in known.commits[max(0, place - 500) : place + 500] if one.pipeline == commit.pipeline]
        at = own.index(commit)
        return {
            **batch_page(commit, known.table, known.summaries[commit.snapshot], self._plan(commit)),
            "newer": str(own[at - 1].snapshot) if at else None,
            "older": str(own[at + 1].snapshot) if at + 1 < len(own) else None,
        }

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> list[dict[str, Any]] | None:
        """The rejected rows of a commit, in each of its quarantines."""
        found = self._commit(table, snapshot)
        if found is None:
            return None
        load = self._view().load
        tables = [load(name) for name in quarantines(found[0].table, found[1])]
        return [rejected(one, found[1], samples=samples) for one in tables if one is not None]

    def table(self, name: str) -> dict[str, Any] | None:
        known = self._known.get(name)
        return _page(known) if known is not None else None

    def _commit(self, table: str, snapshot: str) -> tuple[Known, Commit] | None:
        known = self._known.get(table)
        missing = known is None or _id(snapshot) not in known.places
        if missing and time.monotonic() - self._refreshed > ASKED_EVERY:
            self.refresh()  # it may be younger than the last look
            known = self._known.get(table)
        place = known.places.get(_id(snapshot)) if known is not None else None
        return (known, known.commits[place]) if known is not None and place is not None else None

    def _plan(self, commit: Commit) -> KeptPlan | None:
        if commit.pipeline is None or commit.steps is None:
            return None
        name = commit.pipeline.removesuffix(REPLAY).removesuffix(BACKFILL)
        if commit.steps not in self._plans.get(name, {}):
            view = self._view()
            given = [view.checkpoints[name]] if name in view.checkpoints else []
            self._plans[name] = {plan.steps: plan for plan in plans_of(name, view.places, given)}
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
            except Exception as error:  # any client's error: the page shows it, and the next look may go well
                self.problems = (f"the lake cannot be read: {type(error).__name__}: {error}",)
            took = time.monotonic() - began
            self._ended.wait(max(self._least, took * (1 / self._share - 1)))

    def refresh(self) -> None:
        """Reads what has changed."""
        with self._reading:
            view = self._view()
            problems: list[str] = []
            new: list[Happening] = []
            seen: set[str] = set()
            try:
                for table in self._look():
                    seen.add(table.name)
                    try:
                        new += self._read(table, view)
                    except HeliosError as error:
                        problems.append(str(error))
            except HeliosError as error:
                problems.append(str(error))  # an unreachable catalog: what is known of its tables stays
            else:
                self._known = {name: known for name, known in self._known.items() if name in seen}
            self.problems = tuple(problems)
            self._refreshed = time.monotonic()
            self._found(sorted(new, key=lambda one: one.at))
            self.looked = True

    def _read(self, table: Table, view: View) -> list[Happening]:
        """Reads a table where it has changed; its new commits."""
        known, new = self._known.get(table.name), list[Happening]()
        if known is None or known.table.iceberg.metadata_location != table.iceberg.metadata_location:
            made = commits(table)
            places = {commit.snapshot: index for index, commit in enumerate(made)}
            fresh = [commit for commit in made if known is None or commit.snapshot not in known.places]
            before = known.statuses if known is not None else []
            summaries = summaries_of(table)
            known = Known(table, facts_of(table, small=None), made, places, summaries, before)
            self._known = {**self._known, table.name: known}
            new = [happening(commit, table.name, summaries[commit.snapshot]) for commit in fresh]
        if time.monotonic() - known.looked > STATUS_EVERY:
            known.statuses = statuses(table, view)
            known.looked = time.monotonic()
            small = max((status.small for status in known.statuses), default=None)
            known.facts = facts_of(table, small=small if not known.facts.quarantine else None)
            for status in known.statuses:
                self._running[status.pipeline] = _is_running(status.pipeline, view)
        return new


def _page(known: Known) -> dict[str, Any]:
    return table_page(known.table, known.facts, known.commits, known.summaries)


def _is_running(pipeline: str, view: View) -> bool | None:
    """True if a driver is alive on the checkpoint that a script gives a pipeline; None where that is unknown."""
    given = view.checkpoints.get(pipeline)
    try:
        folders = checkpoints_of(pipeline, view.places, [given]) if given else []
        holders = [parse_lease(folder.text(FILE)) for folder in folders]
    except HeliosError:
        return None
    if not folders:
        return None
    return any(holder is not None and alive(holder) for holder in holders)


def _id(snapshot: str | None) -> int:
    return int(snapshot) if snapshot is not None and snapshot.isdecimal() else -1
