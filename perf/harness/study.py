"""What a study is: a measurement that is no race, whose result is a table of figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from perf.harness.lake import Settings


class Study:
    """A measurement with a table of its own.

    Attributes:
        name: Its name on the command line.
        says: What it is, in a line.
        rows: Its size, unless `--rows` says otherwise; `size_says` says of what.
        size_says: What the size counts.
        goal: What Helios is to reach.
        columns: The columns of its table.
    """

    name: ClassVar[str]
    says: ClassVar[str]
    rows: ClassVar[int]
    size_says: ClassVar[str]
    goal: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self.settings = settings
        self.tell = tell

    def measure(self) -> list[tuple[str, ...]]:
        """The lines of the table, by `columns`."""
        raise NotImplementedError


def studied(study: type[Study], settings: Settings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Runs a study; returns what `report` reads."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    tell(f"{study.name}: {study.says}")
    lines = study(settings, tell).measure()
    return {
        "workload": study.name,
        "says": study.says,
        "goal": study.goal,
        "rows": settings.rows,
        "size": study.size_says,
        "cores": settings.cores,
        "heap": settings.heap,
        "columns": list(study.columns),
        "lines": [list(line) for line in lines],
    }


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of the values does not exceed.

    Examples:
        >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5), quantile([3.0, 1.0, 2.0, 4.0], 0.99)
        (2.0, 4.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 1000) // 1000) - 1)]
