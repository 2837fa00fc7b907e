"""Contenders in turns: rounds that are interleaved, targets that are compared, and what comes of it as a value."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from perf.harness.lake import Settings
from perf.harness.usage import Usage
from perf.harness.worker import Worker
from perf.harness.workload import JUDGE, Workload

BASE = "naive"


class Differ(Exception):
    """A contender has written other rows than it should."""


@dataclass
class Laps:
    """The rounds of one contender that count.

    Attributes:
        usages: What each used.
        rows: How many rows each read.
        files: The data files of its last target.
        bytes: Their size.
    """

    usages: list[Usage] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def seconds(self) -> list[float]:
        return [usage.seconds for usage in self.usages]

    def figures(self, base: Laps | None) -> dict[str, Any]:
        """What is told of a contender; the ratio is the base's time over its own, of the same rounds."""
        seconds = self.seconds()
        million = [rows / 1e6 for rows in self.rows]
        ratios = [b / a for a, b in zip(seconds, base.seconds(), strict=True)] if base else []
        return {
            "rounds": len(seconds),
            "seconds": {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)},
            "rows_per_second": statistics.median(r / s for r, s in zip(self.rows, seconds, strict=True)),
            "ratio": {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)} if base else None,
            "cpu_seconds_per_million_rows": statistics.median(
                u.cpu / m for u, m in zip(self.usages, million, strict=True)
            ),
            "peak_memory": max(usage.memory for usage in self.usages),
            "write_amplification": (
                statistics.median(u.written for u in self.usages) / self.bytes if self.bytes else None
            ),
            "files": self.files,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Rounds:
    """How often a race goes round.

    Attributes:
        count: The rounds that count.
        warm_up: Those before, in which JVMs compile what they run.
    """

    count: int = 5
    warm_up: int = 1


def race(
    workload: type[Workload],
    settings: Settings,
    rounds: Rounds,
    contenders: list[str],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Runs a workload.

    Args:
        workload: What is done.
        settings: Size, cores, memory, folder.
        rounds: How often.
        contenders: Who takes part, by the names in `CONTENDERS`.
        tell: Called with a line for each round.

    Returns:
        What `report` reads: the workload, its settings, and the figures of each contender.

    Raises:
        Differ: A target does not hold what it must.
        WorkerError: A contender failed.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        judge = stack.enter_context(Worker(workload, JUDGE, settings))
        workers = {name: stack.enter_context(Worker(workload, name, settings)) for name in contenders}
        tell(f"{workload.name}: {workload.says}, {settings.rows:,} rows; making the data")
        judge.call("prepare")
        laps = _rounds(workload, rounds, judge, workers, tell)
    base = laps.get(BASE)
    return {
        "workload": workload.name,
        "says": workload.says,
        "goal": workload.goal,
        "rows": settings.rows,
        "cores": settings.cores,
        "heap": settings.heap,
        "warm_up": rounds.warm_up,
        "contenders": {name: laps[name].figures(base) for name in contenders},
        "laps": {name: [asdict(usage) for usage in laps[name].usages] for name in contenders},
    }


def _rounds(
    workload: type[Workload], rounds: Rounds, judge: Worker, workers: dict[str, Worker], tell: Callable[[str], None]
) -> dict[str, Laps]:
    names = list(workers)
    laps = {name: Laps() for name in names}
    kept = {name: f"{name}_target" for name in names} if workload.keeps else {}
    for name, target in kept.items():
        judge.call("create", target, name)
    wanted = (0, 0) if kept else judge.call("wanted")
    for number in range(1, rounds.warm_up + rounds.count + 1):
        rows = judge.call("change", number)
        told, turn = [], number % len(names)
        for name in names[turn:] + names[:turn]:
            target = kept.get(name) or f"{name}_{uuid.uuid4().hex[:8]}"
            if not kept:
                judge.call("create", target, name)
            _, usage = workers[name].timed(name, target)
            laps[name].files, laps[name].bytes = judge.call("written", target)
            if number > rounds.warm_up:
                laps[name].usages.append(usage)
                laps[name].rows.append(rows)
            told.append(f"{name} {usage.seconds:.2f} s")
            if not kept:
                _compare(name, judge.call("found", target), wanted)
                judge.call("drop", target)
        what = f"round {number - rounds.warm_up}" if number > rounds.warm_up else f"warm-up {number}"
        tell(f"{what}: {', '.join(told)}")
    if kept:
        wanted = judge.call("wanted")
        for name, target in kept.items():
            _compare(name, judge.call("found", target), wanted)
    return laps


def _compare(name: str, found: tuple[int, int], wanted: tuple[int, int]) -> None:
    if found != wanted:
        raise Differ(f"{name} has written {found[0]:,} rows (sum {found[1]}), and not {wanted[0]:,} (sum {wanted[1]})")
