"""The source in a test of the user's pipeline: the rows that the test gives are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helios.model.flow import Source
from helios.testing.feeds import Feed
from helios_counter.declare import CounterSource


class CounterFeed(Feed):
    """Counts the rows of a test into a file of its own."""

    def __init__(self, source: CounterSource, folder: Path) -> None:
        super().__init__(source.path)
        self._end = folder / "counter.txt"
        self.deliver([])

    def prepare(self, rows: Any) -> list[Any]:
        return list(rows)

    def deliver(self, records: Sequence[Any]) -> None:
        before = int(self._end.read_text()) if self._end.exists() else 0
        self._end.write_text(str(before + len(records)))

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, CounterSource)
        return replace(source, path=str(self._end))
