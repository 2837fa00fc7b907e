"""What a batch of a windowed aggregate takes beside its state, with each place where Spark can keep it."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import ClassVar

from perf.harness.study import Study, quantile
from perf.harness.worker import Worker
from perf.workloads.stateful import Windows

BATCHES = 40
PASSES = 2
WARM_UP = 1
HEAP_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


class Batches(Windows):
    """The windows, whose rows come in batches of one file each."""

    name = "batches"

    def prepare(self) -> None:
        self.make(BATCHES)

    def helios(self, target: str) -> None:
        source = self.lake.source().incremental(max_files=1)
        self.lake.drained(source >> self.steps() >> self.lake.sink(target))

    def heap(self, target: str) -> None:
        """Helios, with Spark's default for the state."""
        for key, value in HEAP_STATE.items():
            self.lake.spark.conf.set(key, value)
        self.helios(target)

    def naive(self, target: str) -> None:
        self.windowed(target, **{"streaming-max-files-per-micro-batch": "1"})

    def drained(self, method: str, target: str) -> list[float]:
        """Runs a job; returns the seconds between the commits of its batches, which its checkpoint tells."""
        getattr(self, method)(target)
        (log,) = (path for path in self.lake.folder.rglob("commits") if target in str(path.parent))
        times = sorted(file.stat().st_mtime for file in log.iterdir() if file.name.isdigit())
        return [after - before for before, after in pairwise(times)]


class WindowBatches(Study):
    """The same stream with its state outside of the heap, as Helios keeps it, and in the heap, as Spark does."""

    name = "window-batches"
    says = f"windows of an hour in {BATCHES} batches, {PASSES} times in turns after {WARM_UP} to warm up"
    rows = 5_000_000
    size_says = "rows, a fifth as many keys"
    goal = "p99 of a batch beside naive's"
    columns = ("contender", "state", "batches", "p50", "p99", "whole run", "peak memory")
    contenders: ClassVar[dict[str, tuple[str, str]]] = {
        "helios": ("helios", "RocksDB"),
        "helios-heap": ("heap", "the heap, by [spark.conf]"),
        "naive": ("naive", "the heap"),
        "tuned": ("tuned", "RocksDB"),
    }

    def measure(self) -> list[tuple[str, ...]]:
        taken: dict[str, list[float]] = {name: [] for name in self.contenders}
        whole: dict[str, list[float]] = {name: [] for name in self.contenders}
        memory = dict.fromkeys(self.contenders, 0)
        with ExitStack() as stack:
            judge = stack.enter_context(Worker(Batches, "helios-judge", self.settings))
            judge.call("prepare")
            wanted = judge.call("wanted")
            workers = {name: stack.enter_context(Worker(Batches, name, self.settings)) for name in self.contenders}
            for number in range(WARM_UP + PASSES):
                for name, (method, _) in self.contenders.items():
                    target = f"{name.replace('-', '_')}_{number}"
                    judge.call("create", target, name)
                    seconds, used = workers[name].timed("drained", method, target)
                    if judge.call("found", target) != wanted:
                        raise ValueError(f"{name} has written other rows than it should into {target}")
                    if number >= WARM_UP:
                        taken[name] += seconds
                        whole[name].append(used.seconds)
                        memory[name] = max(memory[name], used.memory)
                self.tell(f"pass {number + 1}: " + ", ".join(f"{n} {s[-1]:.1f} s" for n, s in whole.items() if s))
        return [
            (
                name,
                state,
                f"{len(taken[name]):,}",
                f"{quantile(taken[name], 0.5):.2f} s",
                f"{quantile(taken[name], 0.99):.2f} s",
                f"{quantile(whole[name], 0.5):.1f} s",
                f"{memory[name] / 2**30:.1f} GiB",
            )
            for name, (_, state) in self.contenders.items()
        ]
