"""The last batch that was committed to each target, and the newest snapshot that is proven to descend from it.

<checkpoint>/helios/landed/<target>.json

Helios writes the file after each commit, and after each look-up that has proven that a newer head of the branch
descends from the batch. The pipeline's record, a property of the target table, names the same batch. If the record
names an older batch, the table was reset to older metadata.

A search for the batch in the history may end at the noted head. So it succeeds even if the snapshots between the head
and the batch have expired.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from helios.catalog.names import file_name
from helios.errors import CheckpointError
from helios.plan.nodes import VERSION
from helios.spark.checkpoint.files import LANDED, Checkpoint
from helios.table.ancestry import Landing


class Landings:
    """The file with the last batch that was committed to one target.

    Args:
        id: The checkpoint's id; files of other checkpoints are ignored.
        target: The table's name and its branch, as text.
    """

    def __init__(self, checkpoint: Checkpoint, id: str, target: str) -> None:
        self._checkpoint = checkpoint
        self._id = id
        self._file = f"{LANDED}/{file_name(target)}.json"
        self._last: Landing | None = None
        self._read = False

    def last(self) -> Landing | None:
        """The last batch; None when none is known.

        Raises:
            CheckpointError: The file is damaged.
        """
        if not self._read:
            text = self._checkpoint.files.read(self._file)
            self._last = self._parse(text) if text is not None else None
            self._read = True
        return self._last

    def store(self, landing: Landing) -> None:
        """Stores a committed batch, or the last one with a newer head that descends from it."""
        if landing != self.last():
            fields = {"v": VERSION, "checkpoint": self._id, **asdict(landing)}
            self._checkpoint.files.write(self._file, json.dumps(fields))
            self._last = landing

    def forget(self) -> None:
        """Forgets the last batch, because the target is created again."""
        self._checkpoint.files.delete(self._file)
        self._last, self._read = None, True

    def _parse(self, text: str) -> Landing | None:
        try:
            fields = json.loads(text)
            landing = Landing(**{name: fields[name] for name in ("batch", "snapshot", "sequence", "head")})
            return landing if fields["checkpoint"] == self._id else None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._checkpoint.location}/{self._file} is damaged ({error}).",
                fix="restore the file from a backup, or delete it: Helios then relies on the target's record alone.",
            ) from error
