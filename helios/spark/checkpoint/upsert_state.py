"""What an upsert remembers of its keys beside the target: deletes, and the order where the target has no column for it.

<checkpoint>/helios/keys/<target>/
  terms.json   the key columns, and what the order is
  delta/N      the keys that batch N wrote, deleted, or both: key columns, order, deleted, at
  base/N       all deltas up to N, folded into one row per key; deletes older than they are remembered are left out

Batch N reads what the batches before it left, and writes its own delta before its commit: run again, it reads the same
and replaces its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from helios.errors import CheckpointError, Origin
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.jvm.sql import quoted

ORDER, DELETED = "__helios_order", "__helios_deleted"
FOLD_AFTER = 10
"""Deltas after which they are folded into a base."""


class UpsertState:
    """The remembered keys of one target.

    Args:
        checkpoint: The pipeline's checkpoint, beside which they are kept.
        target: The table's name.
        tombstones: Seconds for which a delete is remembered.
    """

    def __init__(self, checkpoint: Checkpoint, target: str, tombstones: float) -> None:
        folder = "".join(c if c.isalnum() or c in "_-." else "_" for c in target)
        self.files = checkpoint.files
        self.folder = f"helios/keys/{folder}"
        self._tombstones = tombstones

    def verify_terms(self, terms: Mapping[str, object], target: str, where: Origin | None) -> None:
        """Notes what the remembered orders are, by which alone they can be compared.

        Args:
            terms: The key columns, and the order as it is declared and of which type.
            target: The table, for the message.
            where: The line to blame.

        Raises:
            CheckpointError: Keys are remembered by other terms.
        """
        text, known = json.dumps(terms), self.files.read(f"{self.folder}/terms.json")
        if text == known:
            return
        if known is not None and any(self.files.names(f"{self.folder}/{kind}") for kind in ("base", "delta")):
            raise CheckpointError(
                f"what the checkpoint remembers of the keys of {target} is by {_shown(json.loads(known))}; the sink "
                f"now says {_shown(terms)}, with which it cannot be compared.",
                where=where,
                fix="put the keys and the order back, or fill the target anew with `helios run --full-refresh`; to go "
                f"on without what is remembered, so that late rows win once, delete {self.path('')}.",
            )
        self.files.write(f"{self.folder}/terms.json", text)

    def forget(self, batch: int) -> None:
        """Forgets what a batch wrote that the target will never have."""
        self.files.delete(f"{self.folder}/delta/{batch}")

    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        """The newest order of each remembered key, and whether it was deleted; None when nothing is remembered.

        Args:
            spark: The session.
            batch: The batch that asks.
            keys: The key columns; with `ORDER` among them every order of a key is told, as it was remembered.
        """
        base = max(self.numbers("base", batch), default=None)
        deltas = [n for n in self.numbers("delta", batch) if base is None or n > base]
        if len(deltas) > FOLD_AFTER:
            self.fold(spark, base, deltas, keys)
            base, deltas = deltas[-1], []
        paths = [f"base/{base}"] * (base is not None) + [f"delta/{n}" for n in deltas]
        return self._newest(self._read(spark, paths), keys) if paths else None

    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        """Writes a batch's keys: `rows` has the key columns, the order and whether the key was deleted."""
        kept = rows.select(*map(quoted, dict.fromkeys((*keys, ORDER, DELETED)))).withColumn("at", F.lit(time.time()))
        kept.write.mode("overwrite").parquet(self.path(f"delta/{batch}"))

    def fold(self, spark: SparkSession, base: int | None, deltas: list[int], keys: tuple[str, ...]) -> None:
        paths = [f"base/{base}"] * (base is not None) + [f"delta/{n}" for n in deltas]
        newest = self._newest(self._read(spark, paths), keys)
        forgotten = F.col(DELETED) & (F.col("at") < F.lit(time.time() - self._tombstones))
        newest.where(~forgotten).write.mode("overwrite").parquet(self.path(f"base/{deltas[-1]}"))
        for path in paths:
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
        """The finished folders of batches before one."""
        found = []
        for name in self.files.names(f"{self.folder}/{kind}"):
            number = name.removeprefix("-")
            done = number.isdigit() and "_SUCCESS" in self.files.names(f"{self.folder}/{kind}/{name}")
            if done and int(name) < before:
                found.append(int(name))
        return sorted(found)

    def path(self, name: str) -> str:
        return f"{self.files.root}/{self.folder}/{name}"


def _shown(terms: Mapping[str, object]) -> str:
    keys = terms["keys"]
    return (
        f"{', '.join(keys) if isinstance(keys, (list, tuple)) else keys}, newest by {terms['order']} ({terms['type']})"
    )
