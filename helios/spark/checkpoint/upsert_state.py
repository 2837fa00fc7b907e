"""The state of an upsert beside its target: deleted keys, and the order of keys where the target does not store it.

<warehouse>/_helios/keys/<id>/     the id is that of the checkpoint
  terms.json     the key columns and the order
  delta/N        the keys of batch N: key columns, order, whether deleted, and when; a batch without any has none
  base/N         all deltas up to N, folded into one row per key, without expired deletes
  replayed/R     the keys of a replay of quarantined rows; it counts once the target has that replay
  settled/R      says that it has
  replaced.json  what newer folders have replaced, and since when

Batch N reads the state that the batches before it left, and writes its own delta before its commit: when it is run
again, it reads the same state and replaces its own delta. Other pipelines that upsert into the table read the state,
too, up to the batch that the table has (see helios.spark.sinks.shared_keys).

The state is the folder helios/keys/<target> of the checkpoint, which nobody else reads, where only the server knows the
warehouse or the checkpoint is in another store, and of routed and mirrored tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from helios.catalog.names import file_name
from helios.errors import CheckpointError, Origin
from helios.spark.checkpoint.files import KEYS, Checkpoint
from helios.spark.checkpoint.small_files import SmallFiles, small_files
from helios.spark.jvm.sql import quoted

ORDER, DELETED, AT = "__helios_order", "__helios_deleted", "__helios_at"
FOLD_AFTER = 10
"""Deltas that are folded into a base when there are more of them."""
KEPT_SECONDS = 3600.0
"""How long folders stay that were folded: a batch of another pipeline may be reading them."""


class UpsertState:
    """The state of the upserts of one pipeline into one target.

    Args:
        files: The files around it.
        folder: Its folder there.
        tombstones: Seconds for which a delete is remembered.
        has_replay: Whether the target has a replay: by the UUID of its quarantine, and its number there.

    Attributes:
        saved: The folder that the last `save` has written; None where there was nothing to remember.
    """

    def __init__(
        self, files: SmallFiles, folder: str, tombstones: float, has_replay: Callable[[str, int], bool]
    ) -> None:
        self.files = files
        self.folder = folder
        self.saved: str | None = None
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
                f"what is remembered of the keys of {target} is by {_shown(json.loads(known))}; the sink "
                f"now says {_shown(terms)}, with which it cannot be compared.",
                where=where,
                fix="put the keys and the order back, or refill the target with `helios run --full-refresh`; to go "
                f"on without what is remembered, so that late rows win once, delete {self.path('')}.",
            )
        self.files.write(f"{self.folder}/terms.json", text)

    @property
    def terms(self) -> Mapping[str, object] | None:
        """The key columns and the order of the state; None before its first batch."""
        text = self.files.read(f"{self.folder}/terms.json")
        return dict(json.loads(text)) if text is not None else None

    @cached_property
    def began_with_keys(self) -> bool:
        """True if it held any key when the run began: a script without deletes still compares with them."""
        return self.remembers

    @property
    def remembers(self) -> bool:
        """True if it holds any key."""
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
        base, deltas = self._finished(batch)
        replayed = self._replayed()
        if len(deltas) > FOLD_AFTER:
            self._fold(spark, base, deltas, replayed, keys)
            base, deltas, replayed = deltas[-1], [], []
        paths = _paths(base, deltas, replayed)
        return newest(self._read(spark, paths), keys) if paths else None

    def read(self, spark: SparkSession, last: int, keys: tuple[str, ...]) -> DataFrame | None:
        """The state up to a batch, for another pipeline: nothing is folded, and expired deletes are left out.

        Args:
            spark: The session.
            last: The batch.
            keys: The key columns, as for `load`.
        """
        paths = self._all(last)
        return newest(self._read(spark, paths), keys).where(~self._expired()) if paths else None

    def knows(self, last: int) -> bool:
        """True if it has state of the batches up to the given one."""
        return bool(self._all(last))

    def take_over(self, spark: SparkSession, former: UpsertState, last: int) -> None:
        """Begins with the state of this pipeline's former checkpoint, up to a batch."""
        terms = former.files.read(f"{former.folder}/terms.json")
        if terms is None:
            return
        self.files.write(f"{self.folder}/terms.json", terms)
        # A base was made by a later batch, so that all that is in it is finished, also what the record does not tell.
        paths = _paths(*former._finished(last + 1, base_before=float("inf")), former._replayed())
        if paths:
            rows = former._read(spark, paths)
            rows.where(~self._expired()).write.mode("overwrite").parquet(self.path("base/-1"))

    def replaces(self, former: UpsertState) -> None:
        """Deletes a former state once no reader needs it; the record does not name it any more."""
        if former.files.root == self.files.root:
            self._note_replaced([former.folder])
        else:
            former.files.delete(former.folder)

    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        """Writes the delta of a batch; none for one without rows.

        Args:
            rows: The key columns, the order, and whether the key was deleted.
            batch: The batch.
            keys: The key columns, as for `load`.
        """
        self._write(rows, f"delta/{batch}", keys)

    def _write(self, rows: DataFrame, name: str, keys: tuple[str, ...]) -> None:
        kept = rows.select(*map(quoted, dict.fromkeys((*keys, ORDER, DELETED)))).withColumn(AT, F.lit(time.time()))
        self.saved = None if kept.isEmpty() else self.path(name)
        if self.saved is None:
            self.files.delete(f"{self.folder}/{name}")  # of a try of this batch by other steps
        else:
            kept.write.mode("overwrite").parquet(self.saved)
            self._note_replaced([], but=f"{self.folder}/{name}")

    def _all(self, last: int) -> list[str]:
        """The folders with the state after a batch, for readers."""
        names = sorted(self.files.names(f"{self.folder}/replayed"))
        return _paths(*self._finished(last + 1), [f"replayed/{name}" for name in names if self._is_replayed(name)])

    def _finished(self, before: int, *, base_before: float | None = None) -> tuple[int | None, list[int]]:
        """The newest base before a batch, and the deltas between them that are finished, ascending.

        Args:
            before: The batch.
            base_before: Another end for the base.
        """
        limit = before if base_before is None else base_before
        bases = sorted((n for n in self._numbers("base") if n < limit), reverse=True)
        base = next((n for n in bases if self._is_written(f"base/{n}")), None)
        deltas = sorted(n for n in self._numbers("delta") if n < before and (base is None or n > base))
        return base, [n for n in deltas if self._is_written(f"delta/{n}")]

    def _is_replayed(self, name: str) -> bool:
        """True if a replay is written and the target has it."""
        quarantine, _, number = name.rpartition("-")
        settled = self.files.read(f"{self.folder}/settled/{name}") is not None
        return self._is_written(f"replayed/{name}") and (settled or self._has_replay(quarantine, int(number)))

    def _replayed(self) -> list[str]:
        """The replays that the target has; the files of other replays are deleted."""
        names = sorted(self.files.names(f"{self.folder}/replayed"))
        settled = self.files.names(f"{self.folder}/settled") if names else ()
        replayed = []
        for name in names:
            if not self._is_replayed(name):
                self.files.delete(f"{self.folder}/replayed/{name}")
                continue
            if name not in settled:  # the next replay takes the place of its record
                self.files.write(f"{self.folder}/settled/{name}", "")
            replayed.append(f"replayed/{name}")
        return replayed

    def _fold(
        self, spark: SparkSession, base: int | None, deltas: list[int], replayed: list[str], keys: tuple[str, ...]
    ) -> None:
        """Folds a base, the deltas after it and replays into a new base."""
        paths = _paths(base, deltas, replayed)
        rows = newest(self._read(spark, paths), keys)
        rows.where(~self._expired()).write.mode("overwrite").parquet(self.path(f"base/{deltas[-1]}"))
        gone = [f"base/{n}" for n in self._numbers("base") if n < deltas[-1]]
        gone += [f"delta/{n}" for n in self._numbers("delta") if n <= deltas[-1]]
        gone += [*replayed, *(path.replace("replayed/", "settled/") for path in replayed)]
        self._note_replaced([f"{self.folder}/{name}" for name in gone])

    def _note_replaced(self, folders: Sequence[str], but: str = "") -> None:
        """Notes folders that are no longer needed, and deletes those that no reader can still use.

        Args:
            folders: The folders, within those around the state.
            but: A folder that is written again: a replay takes the number of one that the table has lost.
        """
        name, now = f"{self.folder}/replaced.json", time.time()
        text = self.files.read(name)
        known: dict[str, float] = json.loads(text or "{}")
        noted = {folder: since for folder, since in {**dict.fromkeys(folders, now), **known}.items() if folder != but}
        gone = [folder for folder, since in noted.items() if since <= now - KEPT_SECONDS]
        for folder in gone:
            self.files.delete(folder)
        left = {folder: since for folder, since in noted.items() if folder not in gone}
        if left != known:
            self.files.write(name, json.dumps(left))

    def _expired(self) -> Column:
        return F.col(DELETED) & (F.col(AT) < F.lit(time.time() - self._tombstones))

    def _read(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        return reduce(DataFrame.unionByName, [spark.read.parquet(self.path(path)) for path in paths])

    def _numbers(self, kind: str) -> list[int]:
        """The batches that have a base or a delta, finished or not."""
        names = self.files.names(f"{self.folder}/{kind}")
        return [int(name) for name in names if name.removeprefix("-").isdigit()]

    def _is_written(self, name: str) -> bool:
        """True if the rows of a folder are complete."""
        return "_SUCCESS" in self.files.names(f"{self.folder}/{name}")

    def path(self, name: str) -> str:
        """The full path of a folder of this state."""
        return f"{self.files.root}/{self.folder}/{name}"


def place(spark: SparkSession, checkpoint: Checkpoint, target: str, keys: str | None) -> tuple[SmallFiles, str]:
    """The files around a state, and its folder there.

    Args:
        spark: The session.
        checkpoint: The checkpoint of its pipeline.
        target: The table's name.
        keys: The folder, as the record of the pipeline says; None where it is in the checkpoint.
    """
    if keys is None:
        return checkpoint.files, f"{KEYS}/{file_name(target)}"
    around, _, folder = keys.rpartition("/")
    return small_files(spark, around), folder


def newest(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """The row of the newest order per key; for equal orders, that of the later batch."""
    order = [F.col(ORDER).desc_nulls_last(), F.col(AT).desc()]
    rank = F.row_number().over(Window.partitionBy(*map(quoted, keys)).orderBy(*order))
    return rows.withColumn("__helios_rank", rank).where("__helios_rank = 1").drop("__helios_rank")


def _paths(base: int | None, deltas: Sequence[int], replayed: Sequence[str]) -> list[str]:
    return [f"base/{base}"] * (base is not None) + [f"delta/{n}" for n in deltas] + list(replayed)


def _shown(terms: Mapping[str, object]) -> str:
    keys = terms["keys"]
    return (
        f"{', '.join(keys) if isinstance(keys, (list, tuple)) else keys}, newest by {terms['order']} ({terms['type']})"
    )
