"""The state of an upsert beside its target: deleted keys, and the order of keys where the target does not store it.

<checkpoint>/helios/keys/<target>/
  terms.json   the key columns and the order
  delta/N      the keys of batch N: key columns, order, whether deleted, and when
  base/N       all deltas up to N, folded into one row per key, without expired deletes
  replayed/R   the keys of a replay of quarantined rows; it counts once the target has that replay
  settled/R    says that it has

Batch N reads the state that the batches before it left, and writes its own delta before its commit: when it is run
again, it reads the same state and replaces its own delta.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from helios.catalog.names import file_name
from helios.errors import CheckpointError, Origin
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.jvm.sql import quoted

ORDER, DELETED = "__helios_order", "__helios_deleted"
FOLD_AFTER = 10
"""Deltas that are folded into a base when there are more of them."""


class UpsertState:
    """The state of the upserts into one target.

    Args:
        checkpoint: The pipeline's checkpoint, in which it is kept.
        target: The table's name.
        tombstones: Seconds for which a delete is remembered.
        has_replay: Whether the target has a replay: by the UUID of its quarantine, and its number there.

    Attributes:
        files: The checkpoint's files.
        folder: The folder of this state within the checkpoint.
    """

    def __init__(
        self, checkpoint: Checkpoint, target: str, tombstones: float, has_replay: Callable[[str, int], bool]
    ) -> None:
        self.files = checkpoint.files
        self.folder = f"helios/keys/{file_name(target)}"
        self._tombstones = tombstones
        self._has_replay = has_replay

    def verify_terms(self, terms: Mapping[str, object], target: str, where: Origin | None) -> None:
        """Persists the key columns and the order; rejects a state that was written by others.

        Args:
            terms: The key columns, the order as it is declared, and the order's type.
            target: The table, for the message.
            where: The line to blame.

        Raises:
            CheckpointError: The state holds keys by other terms.
        """
        text, known = json.dumps(terms), self.files.read(f"{self.folder}/terms.json")
        if text == known:
            return
        if known is not None and self.remembers:
            raise CheckpointError(
                f"what the checkpoint remembers of the keys of {target} is by {_shown(json.loads(known))}; the sink "
                f"now says {_shown(terms)}, with which it cannot be compared.",
                where=where,
                fix="put the keys and the order back, or fill the target anew with `helios run --full-refresh`; to go "
                f"on without what is remembered, so that late rows win once, delete {self.path('')}.",
            )
        self.files.write(f"{self.folder}/terms.json", text)

    @property
    def remembers(self) -> bool:
        """Whether it holds any key."""
        return any(self.files.names(f"{self.folder}/{kind}") for kind in ("base", "delta", "replayed"))

    def forget(self, batch: int) -> None:
        """Deletes the delta of a batch that will never be in the target."""
        self.files.delete(f"{self.folder}/delta/{batch}")

    def forget_after(self, batch: int) -> None:
        """Deletes the deltas of all batches after one."""
        for number in self.files.names(f"{self.folder}/delta"):
            if number.isdigit() and int(number) > batch:
                self.forget(int(number))

    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        """The state before a batch: each key's newest order, and whether it was deleted; None when there is none.

        Args:
            spark: The session.
            batch: The batch.
            keys: The key columns; with `ORDER` among them every order of a key is kept.
        """
        base = max(self.numbers("base", batch), default=None)
        deltas = [n for n in self.numbers("delta", batch) if base is None or n > base]
        replayed = self._replayed()
        if len(deltas) > FOLD_AFTER:
            self._fold(spark, base, deltas, replayed, keys)
            base, deltas, replayed = deltas[-1], [], []
        paths = [f"base/{base}"] * (base is not None) + [f"delta/{n}" for n in deltas] + replayed
        return self._newest(self._read(spark, paths), keys) if paths else None

    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        """Writes the delta of a batch.

        Args:
            rows: The key columns, the order, and whether the key was deleted.
            batch: The batch.
            keys: The key columns, as for `load`.
        """
        self._write(rows, f"delta/{batch}", keys)

    def _write(self, rows: DataFrame, name: str, keys: tuple[str, ...]) -> None:
        kept = rows.select(*map(quoted, dict.fromkeys((*keys, ORDER, DELETED)))).withColumn("at", F.lit(time.time()))
        kept.write.mode("overwrite").parquet(self.path(name))

    def _replayed(self) -> list[str]:
        """The replays that the target has; what is left of others is deleted."""
        names = sorted(self.files.names(f"{self.folder}/replayed"))
        settled = self.files.names(f"{self.folder}/settled") if names else ()
        found = []
        for name in names:
            quarantine, _, number = name.rpartition("-")
            known = name in settled
            if not self._is_written(f"replayed/{name}") or not (known or self._has_replay(quarantine, int(number))):
                self.files.delete(f"{self.folder}/replayed/{name}")
                continue
            if not known:  # the next replay takes the place of its record
                self.files.write(f"{self.folder}/settled/{name}", "")
            found.append(f"replayed/{name}")
        return found

    def _fold(
        self, spark: SparkSession, base: int | None, deltas: list[int], replayed: list[str], keys: tuple[str, ...]
    ) -> None:
        """Folds a base, the deltas after it and replays into a new base."""
        paths = [f"base/{base}"] * (base is not None) + [f"delta/{n}" for n in deltas] + replayed
        newest = self._newest(self._read(spark, paths), keys)
        expired = F.col(DELETED) & (F.col("at") < F.lit(time.time() - self._tombstones))
        newest.where(~expired).write.mode("overwrite").parquet(self.path(f"base/{deltas[-1]}"))
        for path in (*paths, *(path.replace("replayed/", "settled/") for path in replayed)):
            self.files.delete(f"{self.folder}/{path}")

    def _newest(self, rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        # Of two rows of one order the later batch's is the newer.
        order = [F.col(ORDER).desc_nulls_last(), F.col("at").desc()]
        rank = F.row_number().over(Window.partitionBy(*map(quoted, keys)).orderBy(*order))
        return rows.withColumn("__helios_rank", rank).where("__helios_rank = 1").drop("__helios_rank")

    def _read(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        parts = [spark.read.parquet(self.path(path)) for path in paths]
        return reduce(DataFrame.unionByName, parts)

    def numbers(self, kind: str, before: int) -> list[int]:
        """The batches before one that have a finished base or delta, ascending."""
        found = []
        for name in self.files.names(f"{self.folder}/{kind}"):
            number = name.removeprefix("-")
            if number.isdigit() and int(name) < before and self._is_written(f"{kind}/{name}"):
                found.append(int(name))
        return sorted(found)

    def _is_written(self, name: str) -> bool:
        """Whether the rows of a folder are there whole."""
        return "_SUCCESS" in self.files.names(f"{self.folder}/{name}")

    def path(self, name: str) -> str:
        """The full path of a folder of this state."""
        return f"{self.files.root}/{self.folder}/{name}"


def _shown(terms: Mapping[str, object]) -> str:
    keys = terms["keys"]
    return (
        f"{', '.join(keys) if isinstance(keys, (list, tuple)) else keys}, newest by {terms['order']} ({terms['type']})"
    )
