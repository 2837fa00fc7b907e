"""The batch that `--again` appends a second time: its number in each table, so that a restart can finish the batch.

<checkpoint>/helios/again.json

Each table numbers its batches itself; so do the quarantine and each routed table. So the repeated batch has one number
per table. If a driver dies between two commits, the numbers stay in this file. With them, the next run with `--again`
finds the batch in the tables that have it already.
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
    """The numbers of a repeated batch, by table.

    Args:
        steps: The fingerprint of the pipeline's steps.
        requested: Whether the user requests a repeat of the inputs (`--again`).
    """

    def __init__(self, checkpoint: Checkpoint, steps: str, *, requested: bool) -> None:
        self.requested = requested
        self._checkpoint = checkpoint
        self._steps = steps
        self._sources: Any = None
        self._numbers: dict[str, int] = {}

    def begin(self, sources: Sequence[Mapping[str, object]]) -> str | None:
        """Begins a batch. With `--again`, the batch continues its own earlier, unfinished repeat.

        Args:
            sources: The inputs of the batch, as the entries of the target's record.

        Returns:
            A warning about an earlier repeat that stays unfinished; otherwise None.

        Raises:
            CheckpointError: The file of an earlier run cannot be read.
        """
        self._sources = json.loads(json.dumps(list(sources)))
        unfinished = self._load()
        same = unfinished is not None and same_entries(unfinished["sources"], self._sources)
        if unfinished is not None and same and unfinished["steps"] == self._steps:
            if self.requested:
                self._numbers = unfinished["numbers"]
                return None
            return (
                "an earlier run with --again did not finish: some of the repeated rows may be written, and the "
                "others are not; finish it with `helios run --again`"
            )
        if unfinished is not None:
            self.finish()  # these numbers may become the numbers of other batches
            return (
                "an earlier run with --again of other inputs or steps did not finish: the rows that it wrote stay, "
                "and the rest of its rows is not repeated"
            )
        return None

    def number(self, table: str, number: int) -> int:
        """The number of the batch in a table: the stored one, or else `number`, which is then stored."""
        if table not in self._numbers:
            self._numbers[table] = number
            fields = {"v": VERSION, "sources": self._sources, "steps": self._steps, "numbers": self._numbers}
            self._checkpoint.files.write(AGAIN, json.dumps(fields))
        return self._numbers[table]

    def finish(self) -> None:
        """Deletes the numbers: all tables have the batch, or the repeat is given up."""
        self._checkpoint.files.delete(AGAIN)

    def _load(self) -> dict[str, Any] | None:
        """The inputs, steps and numbers of an unfinished repeat; None if there is none."""
        text = self._checkpoint.files.read(AGAIN)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            return {"sources": fields["sources"], "steps": fields["steps"], "numbers": dict(fields["numbers"])}
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._checkpoint.location}/{AGAIN}, the progress of a run with --again, is damaged ({error}).",
                fix="restore the file from a backup, or delete it: the rows that the run wrote then stay.",
            ) from error
