"""The upsert state of a pipeline: the keys that it deleted, and the order of each key if the target does not store it.

The order of a key is the value of `order_by` in the key's newest row.

<warehouse>/_helios/keys/<id>/     named by the checkpoint's id
  terms.json     the key columns and the order
  delta/N        the keys of batch N: key columns, order, deleted or not, and the time; missing without keys
  base/N         all deltas up to N, folded into one row per key, without expired deletes
  replayed/R     the keys of replay R of quarantined rows; in effect as soon as the target has that replay
  settled/R      an empty file, which notes that the target has replay R
  replaced.json  the folders that newer ones have replaced, each with the time when it was replaced

Batch N reads the state of the batches before it, and writes its own delta before its commit. When the batch is run
again, it reads the same state and replaces its delta. Other pipelines that upsert into the table read the state, too,
up to the last batch that the table has (see helios.spark.sinks.shared_keys).

The state is in the checkpoint, in helios/keys/<target>, for routed and mirrored tables, and if the warehouse is unknown
to the client or in another store than the checkpoint. No other pipeline reads it there.
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
"""The number of deltas above which they are folded into a base, because each batch reads all deltas."""
REPLACED_FIX = "delete it: the folders that it names then stay."
KEPT_SECONDS = 3600.0
"""The time in seconds for which folded folders stay: a batch of another pipeline may be reading them."""


class UpsertState:
    """The state of the upserts of one pipeline into one target.

    Args:
        files: Reads and writes files in the parent of the state's folder.
        folder: The name of the state's folder, relative to `files`.
        remember_seconds: The time for which a delete is remembered.
        has_replay: Returns True if the target has a replay, given the quarantine's UUID and the replay's number.

    Attributes:
        saved_folder: The folder that the last `save` has written; None if it had no rows.
    """

    def __init__(
        self, files: SmallFiles, folder: str, remember_seconds: float, has_replay: Callable[[str, int], bool]
    ) -> None:
        self.files = files
        self.folder = folder
        self.saved_folder: str | None = None
        self._remember_seconds = remember_seconds
        self._has_replay = has_replay

    def verify_terms(self, terms: Mapping[str, object], target: str, where: Origin | None) -> None:
        """Persists the key columns and the order; rejects a state that was written with other ones.

        Args:
            terms: The key columns, the declared order, and the order's type.

        Raises:
            CheckpointError: The state has keys that were written with other terms.
        """
        text = json.dumps(terms)
        stored = self.files.read(f"{self.folder}/terms.json")
        if text == stored:
            return
        if stored is not None and self.has_keys:
            raise CheckpointError(
                f"the upsert state of {target} has {_shown(self.terms or {})}; the sink now has {_shown(terms)}. "
                "The two cannot be compared.",
                where=where,
                fix="put the keys and the order back, or refill the target with `helios run --full-refresh`. To go on "
                f"without the state, delete {self.path('')}: a late row may then replace a newer one once.",
            )
        self.files.write(f"{self.folder}/terms.json", text)

    @property
    def terms(self) -> Mapping[str, object] | None:
        """The key columns and the order of the state; None before its first batch."""
        stored = self.files.read_json(f"{self.folder}/terms.json", "restore it from a backup.")
        return dict(stored) if stored is not None else None

    @cached_property
    def began_with_keys(self) -> bool:
        """True if the state had keys when the run began. Then even a script without deletes must compare with them."""
        return self.has_keys

    @property
    def has_keys(self) -> bool:
        return any(self.files.names(f"{self.folder}/{kind}") for kind in ("base", "delta", "replayed"))

    def forget(self, batch: int) -> None:
        """Deletes the delta of a batch that will never be committed to the target."""
        self.files.delete(f"{self.folder}/delta/{batch}")

    def forget_after(self, batch: int) -> None:
        """Deletes the deltas of all batches after the given one."""
        for number in self.files.names(f"{self.folder}/delta"):
            if number.isdigit() and int(number) > batch:
                self.forget(int(number))

    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        """The state before a batch: each key's newest order, and whether the key was deleted; None without a state.

        Args:
            keys: The columns that identify a row: the key columns, and `ORDER` to keep every order of a key.
        """
        base, deltas = self._finished(batch)
        replayed = self._replayed()
        if len(deltas) > FOLD_AFTER:
            self._fold(spark, base, deltas, replayed, keys)
            base, deltas, replayed = deltas[-1], [], []
        paths = _paths(base, deltas, replayed)
        return newest(self._read(spark, paths), keys) if paths else None

    def read(self, spark: SparkSession, last: int, keys: tuple[str, ...]) -> DataFrame | None:
        """The state after batch `last`, for another pipeline. The call folds nothing, and leaves expired deletes out.

        Args:
            keys: The key columns, as for `load`.
        """
        paths = self._folders_up_to(last)
        return newest(self._read(spark, paths), keys).where(~self._expired()) if paths else None

    def has_state(self, last: int) -> bool:
        """True if the state has a key of a batch up to the given one."""
        return bool(self._folders_up_to(last))

    def take_over(self, spark: SparkSession, former: UpsertState, last: int) -> None:
        """Copies the state of this pipeline's former checkpoint, up to a batch."""
        terms = former.files.read(f"{former.folder}/terms.json")
        if terms is None:
            return
        self.files.write(f"{self.folder}/terms.json", terms)
        # A base after `last` counts, too: only finished batches are folded, even if the record does not name them.
        paths = _paths(*former._finished(last + 1, base_before=float("inf")), former._replayed())
        if paths:
            rows = former._read(spark, paths)
            rows.where(~self._expired()).write.mode("overwrite").parquet(self.path("base/-1"))

    def begin_as_copy(self, spark: SparkSession, other: UpsertState, batch: int) -> bool:
        """Copies another state, as it was before a batch, into this new state; the other state does not change.

        Returns:
            False if the state before that batch is lost, because later batches were folded into it, or a replay changed
            the state.
        """
        later = any(number >= batch for number in other._numbers("base"))
        base, deltas = other._finished(batch)
        # The folders that a fold replaced are deleted together, unless the run dies meanwhile. So if one remains, all
        # remain. Before batch 0, keys can come only from a former checkpoint.
        is_known = not later or base is not None or bool(deltas) or batch == 0
        if not is_known or other._lacks_folders(base, batch) or other.files.names(f"{other.folder}/replayed"):
            return False
        terms = other.files.read(f"{other.folder}/terms.json")
        paths = _paths(base, deltas, ())
        if terms is not None and paths:
            self.files.write(f"{self.folder}/terms.json", terms)
            other._read(spark, paths).write.mode("overwrite").parquet(self.path("base/-1"))
        return True

    def _lacks_folders(self, base: int | None, batch: int) -> bool:
        """True if folders of the state before a batch are gone.

        They are still in `replaced.json`, because a run died while it deleted replaced folders.

        Args:
            base: The newest base before the batch; None without any.
        """
        noted = self.files.read_json(f"{self.folder}/replaced.json", REPLACED_FIX) or {}
        expected = {f"{self.folder}/delta/{number}" for number in range(0 if base is None else base + 1, batch)}
        if base is None:
            expected |= {f"{self.folder}/base/{number}" for number in range(-1, batch)}
        present = {f"{self.folder}/{kind}/{number}" for kind in ("base", "delta") for number in self._numbers(kind)}
        return not present.issuperset(expected & noted.keys())

    def discard_former(self, former: UpsertState) -> None:
        """Deletes a former state that the record no longer names; after `KEPT_SECONDS` if it lies beside this state."""
        if former.files.root == self.files.root:
            self._note_replaced([former.folder])
        else:
            former.files.delete(former.folder)

    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        """Writes the delta of a batch, or deletes it if there are no rows.

        Args:
            rows: The key columns, the order, and whether the key was deleted.
            keys: The key columns, as for `load`.
        """
        self._write(rows, f"delta/{batch}", keys)

    def _write(self, rows: DataFrame, name: str, keys: tuple[str, ...]) -> None:
        rows = rows.select(*map(quoted, dict.fromkeys((*keys, ORDER, DELETED)))).withColumn(AT, F.lit(time.time()))
        self.saved_folder = None if rows.isEmpty() else self.path(name)
        if self.saved_folder is None:
            self.files.delete(f"{self.folder}/{name}")  # an earlier attempt, with other steps, may have had rows
        else:
            self._note_replaced([], in_use=f"{self.folder}/{name}")
            rows.write.mode("overwrite").parquet(self.saved_folder)

    def _folders_up_to(self, last: int) -> list[str]:
        """The folders with the state after a batch; unlike `load`, the call deletes nothing."""
        names = sorted(self.files.names(f"{self.folder}/replayed"))
        return _paths(*self._finished(last + 1), [f"replayed/{name}" for name in names if self._is_replayed(name)])

    def _finished(self, before: int, *, base_before: float | None = None) -> tuple[int | None, list[int]]:
        """The newest finished base before a batch, and the finished deltas after that base, ascending.

        Args:
            base_before: The batch before which the base must be; by default, `before`.
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
            if name not in settled:  # the target's record names only the last replay
                self.files.write(f"{self.folder}/settled/{name}", "")
            replayed.append(f"replayed/{name}")
        return replayed

    def _fold(
        self, spark: SparkSession, base: int | None, deltas: list[int], replayed: list[str], keys: tuple[str, ...]
    ) -> None:
        """Folds a base, its later deltas and replays into a new base."""
        paths = _paths(base, deltas, replayed)
        rows, folder = newest(self._read(spark, paths), keys), f"base/{deltas[-1]}"
        # The numbers of a new checkpoint begin at 0 again: a base of the former one may have had this number.
        self._note_replaced([], in_use=f"{self.folder}/{folder}")
        rows.where(~self._expired()).write.mode("overwrite").parquet(self.path(folder))
        replaced = [f"base/{n}" for n in self._numbers("base") if n < deltas[-1]]
        replaced += [f"delta/{n}" for n in self._numbers("delta") if n <= deltas[-1]]
        replaced += [*replayed, *(path.replace("replayed/", "settled/") for path in replayed)]
        self._note_replaced([f"{self.folder}/{name}" for name in replaced])

    def _note_replaced(self, folders: Sequence[str], in_use: str = "") -> None:
        """Notes folders that are no longer needed, and deletes those that no reader can still use.

        Args:
            folders: The folders, within `files`.
            in_use: A folder that is about to be written again, and is no longer noted. Numbers are used again after a
                new checkpoint, and if the table has lost a replay.
        """
        name, now = f"{self.folder}/replaced.json", time.time()
        known: dict[str, float] = self.files.read_json(name, REPLACED_FIX) or {}
        noted = {**dict.fromkeys(folders, now), **known}
        noted.pop(in_use, None)
        unused = [folder for folder, noted_at in noted.items() if noted_at <= now - KEPT_SECONDS]
        for folder in unused:
            self.files.delete(folder)
        remaining = {folder: noted_at for folder, noted_at in noted.items() if folder not in unused}
        if remaining != known:
            self.files.write(name, json.dumps(remaining))

    def _expired(self) -> Column:
        return F.col(DELETED) & (F.col(AT) < F.lit(time.time() - self._remember_seconds))

    def _read(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        return reduce(DataFrame.unionByName, [spark.read.parquet(self.path(path)) for path in paths])

    def _numbers(self, kind: str) -> list[int]:
        """The batches that have a base or a delta, finished or not."""
        names = self.files.names(f"{self.folder}/{kind}")
        return [int(name) for name in names if name.removeprefix("-").isdigit()]

    def _is_written(self, name: str) -> bool:
        """True if Spark has finished writing a folder."""
        return "_SUCCESS" in self.files.names(f"{self.folder}/{name}")

    def path(self, name: str) -> str:
        """The full path of a folder of this state."""
        return f"{self.files.root}/{self.folder}/{name}"


def locate_state(
    spark: SparkSession, checkpoint: Checkpoint, target: str, keys_folder: str | None
) -> tuple[SmallFiles, str]:
    """The files of a state's parent folder, and the name of the state's folder within them.

    Args:
        checkpoint: The checkpoint of the state's pipeline.
        keys_folder: The state's folder, as in the pipeline's record; None if the state is in the checkpoint.
    """
    if keys_folder is None:
        return checkpoint.files, f"{KEYS}/{file_name(target)}"
    parent, _, folder = keys_folder.rpartition("/")
    return small_files(spark, parent), folder


def newest(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """The row with the highest order of each key; among equal orders, the row of the latest batch."""
    order = [F.col(ORDER).desc_nulls_last(), F.col(AT).desc()]
    rank = F.row_number().over(Window.partitionBy(*map(quoted, keys)).orderBy(*order))
    return rows.withColumn("__helios_rank", rank).where("__helios_rank = 1").drop("__helios_rank")


def _paths(base: int | None, deltas: Sequence[int], replayed: Sequence[str]) -> list[str]:
    bases = [f"base/{base}"] if base is not None else []
    return [*bases, *(f"delta/{n}" for n in deltas), *replayed]


def _shown(terms: Mapping[str, object]) -> str:
    keys = terms["keys"]
    names = ", ".join(keys) if isinstance(keys, (list, tuple)) else keys
    return f"the keys {names}, newest by {terms['order']} ({terms['type']})"
