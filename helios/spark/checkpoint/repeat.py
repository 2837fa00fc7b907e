"""A batch that is appended again on purpose: its number in each table, so that a restart finishes it.

<checkpoint>/helios/again.json

A repeated batch has no number of its own: each table counts what it has, quarantine and routed tables too. A driver
that dies between two of their commits leaves the numbers here, by which the next run with `--again` finds what landed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from helios.errors import CheckpointError
from helios.plan.nodes import VERSION
from helios.spark.checkpoint.files import AGAIN, Checkpoint
from helios.table.positions import same_entries


class Repeat:
    """The numbers of a batch of repeated inputs, by table.

    Args:
        checkpoint: The pipeline's checkpoint.
        steps: The fingerprint of its steps.
        asked: Whether this run repeats its inputs.
    """

    def __init__(self, checkpoint: Checkpoint, steps: str, *, asked: bool) -> None:
        self.asked = asked
        self._checkpoint = checkpoint
        self._steps = steps
        self._sources: Any = None
        self._numbers: dict[str, int] = {}

    def begin(self, sources: Sequence[Mapping[str, object]]) -> str | None:
        """Begins a batch, or continues one that an earlier run did not finish.

        Args:
            sources: What it reads, as recorded positions have it.

        Returns:
            What there is to say of an earlier run that did not finish; None for nothing.

        Raises:
            CheckpointError: What an earlier run left cannot be read.
        """
        self._sources = json.loads(json.dumps(list(sources)))
        kept = self._kept()
        if kept is not None and same_entries(kept["sources"], self._sources) and kept["steps"] == self._steps:
            if self.asked:
                self._numbers = kept["numbers"]
                return None
            return (
                "an earlier run with --again did not finish: a part of the repeated rows may be written, and the "
                "others are not; finish it with `helios run --again`"
            )
        if kept is not None:
            self.finish()  # its numbers are those of other batches from now on
            return (
                "an earlier run with --again of other inputs or steps did not finish: what it wrote stays, and the "
                "rest of its rows is not repeated"
            )
        return None

    def number(self, table: str, number: int) -> int:
        """The number of the batch in a table: the first one that it got there, or a new one, which is kept."""
        if table not in self._numbers:
            self._numbers[table] = number
            fields = {"v": VERSION, "sources": self._sources, "steps": self._steps, "numbers": self._numbers}
            self._checkpoint.files.write(AGAIN, json.dumps(fields))
        return self._numbers[table]

    def finish(self) -> None:
        """Forgets the numbers: all tables have the batch."""
        self._checkpoint.files.delete(AGAIN)

    def _kept(self) -> dict[str, Any] | None:
        text = self._checkpoint.files.read(AGAIN)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            return {"sources": fields["sources"], "steps": fields["steps"], "numbers": dict(fields["numbers"])}
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._checkpoint.location}/{AGAIN} is damaged ({error}): what a run with --again has written.",
                fix="restore it from a backup; or delete it, and what that run wrote stays.",
            ) from error
