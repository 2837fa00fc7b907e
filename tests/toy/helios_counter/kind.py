"""What Helios asks about the source without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from helios.errors import HeliosError, NotFound
from helios.sources.common.doctor_check import DoctorCheck
from helios.sources.common.kind import SourceKind
from helios.sources.common.position import SourcePosition
from helios.table.positions import Lag, Recorded
from helios.table.view import View
from helios_counter.declare import CounterSource


@dataclass(frozen=True)
class Count(SourcePosition):
    """How far it is read: up to a number of a file."""

    path: str
    number: int

    @classmethod
    def of(cls, value: object) -> Self | None:
        if isinstance(value, Mapping) and value.keys() == {"counter", "number"}:
            return cls(str(value["counter"]), int(value["number"]))
        return None

    def text(self, before: SourcePosition | None) -> str:
        return f"{before.number + 1 if isinstance(before, Count) else 1} to {self.number}"


def newest(path: str) -> int:
    return int(Path(path).read_text())


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """How many numbers wait, for `helios status`."""
    at = entry.position
    return Lag(newest(at.path) - at.number, 0.0) if isinstance(at, Count) else None


def doctor_checks(source: CounterSource) -> tuple[list[DoctorCheck], list[DoctorCheck]]:
    """What `helios doctor` looks at: nothing needs a JVM."""
    return [DoctorCheck("counter", lambda: f"{newest(source.path):,} numbers", address=source.path)], []


def _absent(source: CounterSource) -> HeliosError | None:
    if Path(source.path).exists():
        return None
    what = f"{source.label()}: there is no such file."
    return NotFound(what, where=source.origin, fix="write a number into it.")


COUNTER = SourceKind(
    declared=CounterSource,
    reader="helios_counter.reader:CounterReader",
    position=Count,
    absent=_absent,
    lag="helios_counter.kind:lag",
    doctor_checks="helios_counter.kind:doctor_checks",
    units="numbers",
    feed="helios_counter.feed:CounterFeed",
)
