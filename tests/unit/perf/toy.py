"""A workload without Spark or tables: a target is a file of numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from perf.harness.study import Study
from perf.harness.workload import Workload

WRITTEN = 40 << 20


class Toy(Workload):
    """Who takes part writes the numbers below the size."""

    name = "toy"
    says = "numbers into a file"
    rows = 1000
    goal = "none"

    def path(self, target: str) -> Path:
        return self.lake.folder / target

    def prepare(self) -> None:
        self.path("source").write_text("\n".join(map(str, range(self.size))))

    def create(self, target: str, contender: str) -> None:
        self.path(target).touch()

    def wanted(self) -> tuple[int, int]:
        return self.found("source")

    def found(self, target: str) -> tuple[int, int]:
        numbers = [int(line) for line in self.path(target).read_text().splitlines()]
        return len(numbers), sum(numbers)

    def written(self, target: str) -> tuple[int, int]:
        return 1, self.path(target).stat().st_size

    def drop(self, target: str) -> None:
        self.path(target).unlink()

    def copied(self, target: str) -> None:
        self.path(target).write_text(self.path("source").read_text())

    def helios(self, target: str) -> None:
        self.copied(target)

    def naive(self, target: str) -> None:
        """Takes memory, a processor and the disk, which is measured."""
        held = bytearray(os.urandom(1 << 20) * 200)
        until = time.process_time() + 0.4
        while time.process_time() < until:
            sum(held[:1000])
        made = self.path(f"{target}.big")
        made.write_bytes(held[:WRITTEN])
        self.copied(target)
        made.unlink()


class Parent(Toy):
    """One contender has a process of its own that takes memory and ends."""

    def helios(self, target: str) -> None:
        held = "import time; held = bytearray(b'1') * (200 << 20); time.sleep(2)"
        subprocess.run([sys.executable, "-c", held], check=True)
        self.copied(target)

    def naive(self, target: str) -> None:
        self.copied(target)


class Wrong(Toy):
    """One contender writes a row twice."""

    def helios(self, target: str) -> None:
        self.path(target).write_text(self.path("source").read_text() + "\n0")


class Ended(Toy):
    """One contender's process ends."""

    def helios(self, target: str) -> None:
        os._exit(3)


class Kept(Toy):
    """A target that grows with each round."""

    keeps = True

    def prepare(self) -> None:
        self.path("source").touch()

    def change(self, number: int) -> int:
        with self.path("source").open("a") as file:
            file.write("".join(f"{n}\n" for n in range(number * 10, number * 10 + 10)))
        return 10


class Counted(Study):
    """A study that counts."""

    name = "counted"
    says = "numbers, counted"
    rows = 10
    size_says = "numbers"
    goal = "none"
    columns = ("below", "count")

    def measure(self) -> list[tuple[str, ...]]:
        self.tell("counting")
        return [("five", "5"), ("all", str(self.settings.rows))]
