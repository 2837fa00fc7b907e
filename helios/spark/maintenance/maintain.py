"""Expiry, orphan files, branches and tags with Iceberg's actions, and maintenance between a sink's batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.conf import components, spark_conf, warehouse
from helios.catalog.connections import prepare
from helios.catalog.names import TableName, file_name
from helios.catalog.spec import Catalog
from helios.config import Config
from helios.errors import HeliosError, InputError, RunError
from helios.model.maintenance import Maintenance, orphan_age
from helios.model.values import caller
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.updates import JavaExpiry
from helios.spark.maintenance.compact import (
    Compaction,
    actions,
    compact,
    conflict,
    failed,
    head_of,
    opened,
    target_size,
)
from helios.spark.session import session
from helios.table.maintenance import Expiry, planned_among
from helios.table.readers import warehouses
from helios.table.refs import RefChange

E = TypeVar("E", bound=JavaExpiry)


@dataclass(frozen=True)
class Expired:
    """The result of an expiry: the removed snapshots, and counts of the files that only they named."""

    table: str
    snapshots: tuple[int, ...]
    data_files: int = 0
    delete_files: int = 0
    manifests: int = 0
    manifest_lists: int = 0


@dataclass(frozen=True)
class Orphans:
    """Files in a table's folder that no snapshot names."""

    table: str
    files: tuple[str, ...]
    deleted: bool


def open_session(config: Config, catalog: Catalog, *, debug: bool = False) -> SparkSession:
    """A Spark session with one catalog.

    Raises:
        EnvironmentProblem: Java or a jar is missing, or Spark does not start.
    """
    spark = session.start(config, components(catalog), debug=debug)
    prepare(catalog)
    for key, value in spark_conf(catalog).items():
        spark.conf.set(key, value)
    return spark


# snapshots and files


def expire(spark: SparkSession, name: TableName, expiry: Expiry) -> Expired:
    """Expires exactly the planned snapshots, and deletes the files that only they named.

    Raises:
        InputError: A branch's own retention would let Iceberg remove what a reader needs.
        RunError: The table was changed meanwhile, or Spark or the catalog failed.
    """
    ids = [snapshot.id for snapshot in expiry.snapshots]
    if not ids:
        return Expired(name.text, ())
    table = opened(spark, name)
    try:
        # Iceberg would expire more than is named: nothing is older than 1970, and everything is among the last 2^31.
        going = {int(gone.snapshotId()) for gone in _exactly(table.expireSnapshots(), ids).apply()}
        if endangered := sorted((going - set(ids)) & expiry.needed):
            raise InputError(
                f"the retention that a branch of {name.text} declares for itself would expire snapshot "
                f"{endangered[0]}, which a reader needs; nothing was expired.",
                where=caller(),
                fix="raise max-snapshot-age-ms or min-snapshots-to-keep of the branch, or let the reader catch up.",
            )
        result = _exactly(actions(spark).expireSnapshots(table), ids).execute()
    except (Py4JJavaError, PySparkException) as error:
        if "Still referenced by refs" in str(error) or conflict(error) is not None:
            raise RunError(
                f"table {name.text} was changed by another writer meanwhile; nothing was expired.",
                fix="repeat the command.",
            ) from error
        raise failed(name, "expiry", error) from error
    deletes = int(result.deletedPositionDeleteFilesCount()) + int(result.deletedEqualityDeleteFilesCount())
    return Expired(
        name.text,
        tuple(ids),
        data_files=int(result.deletedDataFilesCount()),
        delete_files=deletes,
        manifests=int(result.deletedManifestsCount()),
        manifest_lists=int(result.deletedManifestListsCount()),
    )


def _exactly(expiry: E, ids: list[int]) -> E:
    expiry = expiry.expireOlderThan(0).retainLast(2**31 - 1)
    for snapshot in ids:
        expiry = expiry.expireSnapshotId(snapshot)
    return expiry


def orphans(spark: SparkSession, name: TableName, older_than: float, *, dry_run: bool = False) -> Orphans:
    """Deletes the files in a table's folder that no snapshot, of any branch, names.

    Args:
        spark: A session with the table's catalog, in UTC.
        name: The table.
        older_than: Seconds; younger files stay, since they may be part of a commit under way.
        dry_run: Whether they are only listed.

    Raises:
        DeclarationError: The age is less than a day.
        InputError: The folder also holds something else than the table, such as a checkpoint.
    """
    older_than = orphan_age(older_than, "older_than")
    table = opened(spark, name)
    _refuse_shared_folder(name, str(table.location()))
    before = datetime.now(UTC) - timedelta(seconds=older_than)

    def found(*, dry: bool) -> tuple[str, ...]:
        rows = spark.sql(
            f"CALL `{name.catalog.name}`.system.remove_orphan_files(table => {_text(_quoted(name))}, "
            f"older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}', dry_run => {str(dry).lower()})"
        ).collect()
        return tuple(sorted(row[0] for row in rows))

    try:
        files = found(dry=True)
        _refuse_checkpoints(name, table, files)
        files = found(dry=False) if files and not dry_run else files
    except (Py4JJavaError, PySparkException) as error:
        raise failed(name, "search for orphan files", error) from error
    return Orphans(name.text, files, deleted=not dry_run)


def _quoted(name: TableName) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in (*name.namespace, name.table))


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _refuse_shared_folder(name: TableName, location: str) -> None:
    """Refuses a folder with other tables inside, such as those of a namespace with the table's name."""
    folder = f"{location.rstrip('/')}/"
    inside = [(warehouse(name.catalog) or "").rstrip("/") + "/_helios"]
    namespaces = [n for n in name.catalog.namespaces() if f"{n}.".startswith(f"{name.within}.")]
    tables = [table for namespace in namespaces for table in name.catalog.tables(namespace)]
    inside += [str(name.catalog.load(table).iceberg.location()) for table in tables]
    shared = next((other for other in inside if f"{other}/".startswith(folder)), None)
    if shared is not None:
        raise InputError(
            f"the folder {location} of {name.text} also holds {shared}, whose files would pass for orphans.",
            fix="delete what is left over by hand.",
        )


def _refuse_checkpoints(name: TableName, table: JavaTable, files: Iterable[str]) -> None:
    """Refuses to delete files of a checkpoint inside the table's folder, which no snapshot names."""
    location = str(table.location()).rstrip("/")
    own = tuple(_path(f"{location}/{part}/") for part in ("data", "metadata"))
    folders = {folder for file in files for folder in _above(file, urlsplit(location).path)}
    for folder in sorted(folder for folder in folders if not _path(f"{folder}/").startswith(own)):
        if table.io().newInputFile(f"{folder}/helios/identity.json").exists():
            raise InputError(
                f"the folder {location} of {name.text} also holds the checkpoint {folder}, whose files would pass for "
                "orphans.",
                fix="give the pipeline a .checkpoint(...) elsewhere, or delete what is left over by hand.",
            )


def _above(file: str, top: str) -> Iterator[str]:
    """The folders of a file inside another one."""
    folder = file.rpartition("/")[0]
    while len(_path(folder)) > len(top):
        yield folder
        folder = folder.rpartition("/")[0]


def _path(location: str) -> str:
    # One file system may have several schemes, such as s3 and s3a.
    return urlsplit(location).path


# branches and tags


def change_ref(spark: SparkSession, name: TableName, change: RefChange) -> None:
    """Makes a change of a branch or a tag that PyIceberg cannot write.

    Raises:
        RunError: The table was changed meanwhile, or the catalog is away.
    """
    manage = opened(spark, name).manageSnapshots()
    try:
        CHANGES[change.action](manage, change).commit()
    except (Py4JJavaError, PySparkException) as error:
        raise failed(name, change.action.replace("_", " "), error) from error


CHANGES: dict[str, Any] = {
    "create_tag": lambda manage, change: manage.createTag(change.name, change.snapshot),
    "create_branch": lambda manage, change: manage.createBranch(change.name, change.snapshot),
    "remove_tag": lambda manage, change: manage.removeTag(change.name),
    "remove_branch": lambda manage, change: manage.removeBranch(change.name),
    "set_main": lambda manage, change: manage.setCurrentSnapshot(change.snapshot),
}
"""Each change as a call of Iceberg."""


# between the batches of a writer

EXPIRE_EVERY = 3600.0
"""Seconds between two expiries of a running pipeline; a tenth of the age when that is less."""
ORPHANS_EVERY = 86400.0
"""Seconds between two searches for orphan files, which list the table's whole folder."""
AFTER_FAILURE = 600.0
"""Seconds before a failed task is retried."""
MOST_BYTES = 4 << 30
"""About how many bytes one compaction between two batches reads: the writer waits for it."""
LEAST_NEW_FILES, MOST_NEW_FILES = 5, 100
"""How many new files are worth a compaction: a twentieth of those that the table should have, within these bounds."""


@dataclass(frozen=True)
class Upkeep:
    """The result of one maintenance task between two batches.

    Attributes:
        kind: compact, expire or orphans.
        done: Its result; None when it failed.
        problem: Why it failed. The writer continues, and the task is retried later.
    """

    kind: str
    done: Compaction | Expired | Orphans | None = None
    problem: str | None = None


class Notes(Protocol):
    """Small files that persist, such as those of a checkpoint."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...


class Maintainer:
    """Maintains a table between its writer's own batches, so that the two cannot conflict.

    Most calls of `after_batch` read the summary of one snapshot, and return.

    Args:
        spark: A session with the table's catalog, in UTC.
        table: The table.
        settings: What is to be done.
        catalogs: The catalogs whose warehouses hold the checkpoints of known readers.
        notes: Where the times of the last tasks are kept; None to start over with every run.
        branch: The branch that the writer writes; None for main.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        settings: Maintenance,
        *,
        catalogs: Iterable[Catalog] = (),
        notes: Notes | None = None,
        branch: str | None = None,
    ) -> None:
        self.spark = spark
        self.table = table
        self.settings = settings
        self.branch = branch
        self._catalogs = {catalog.name: catalog for catalog in (*catalogs, table.catalog)}
        self._notes = notes
        self._done: dict[str, float] = self._remembered()
        self._not_before: dict[str, float] = {}
        self._left: dict[str, int] = {}

    def after_batch(self) -> list[Upkeep]:
        """Runs the tasks that are due, and returns their results; a failure does not stop the writer."""
        work: list[tuple[str, Callable[[], Compaction | Expired | Orphans | None]]] = []
        if self.settings.compact is not None:
            work.append(("compact", self._compact))
        if self.settings.expire is not None and self._due("expire", min(EXPIRE_EVERY, self.settings.expire / 10)):
            work.append(("expire", self._expire))
        if self.settings.orphans is not None and self._due("orphans", ORPHANS_EVERY):
            work.append(("orphans", self._orphans))
        return [
            one for kind, act in work if time.time() >= self._not_before.get(kind, 0) if (one := self._try(kind, act))
        ]

    def _try(self, kind: str, act: Callable[[], Compaction | Expired | Orphans | None]) -> Upkeep | None:
        try:
            done = act()
        except (HeliosError, Py4JError, PySparkException, OSError) as error:
            self._not_before[kind] = time.time() + AFTER_FAILURE
            return Upkeep(kind, problem=str(error).splitlines()[0])
        return Upkeep(kind, done) if done is not None else None

    def _due(self, kind: str, every: float) -> bool:
        return time.time() - self._done.get(kind, 0.0) >= every

    # tasks

    def _compact(self) -> Compaction | None:
        size = self.settings.compact
        if size is None or not self._has_grown(size):
            return None
        done = compact(self.spark, self.table, size, branch=self.branch, most=MOST_BYTES)
        after = head_of(opened(self.spark, self.table), self.branch)
        left = int(after.summary().get("total-delete-files") or 0) if after is not None else 0
        # A compaction that hit its limit continues after the next batch.
        self._left = {} if done.read >= MOST_BYTES / 2 else {"files": done.files, "deletes": left}
        return done if done.rewritten or done.deletes or done.gave_up else None

    def _has_grown(self, size: int) -> bool:
        """Whether there are files enough for a compaction; the table's metadata is let go before it begins."""
        table = opened(self.spark, self.table)
        head = head_of(table, self.branch)
        if head is None:
            return False
        counts = ("total-data-files", "total-delete-files", "total-files-size")
        files, deletes, total = (int(head.summary().get(key) or 0) for key in counts)
        wanted = max(1, total // target_size(table, size))
        now = {"files": files, "deletes": deletes}
        # Another process may have compacted meanwhile: count from its result.
        self._left = {key: min(self._left.get(key, wanted if key == "files" else 0), now[key]) for key in now}
        enough = min(MOST_NEW_FILES, max(LEAST_NEW_FILES, wanted // 20))
        return files - self._left["files"] >= enough or deletes - self._left["deletes"] >= enough

    def _expire(self) -> Expired | None:
        loaded = self.table.catalog.load(self.table.within)
        loaded.iceberg.refresh()
        age = timedelta(seconds=self.settings.expire or 0.0)
        places = warehouses(self._catalogs.values())
        found = planned_among(loaded, age, None, self.settings.readers, places)
        done = expire(self.spark, self.table, found)
        self._remember("expire")
        return done if done.snapshots else None

    def _orphans(self) -> Orphans | None:
        done = orphans(self.spark, self.table, self.settings.orphans or 0.0)
        self._remember("orphans")
        return done if done.files else None

    # times of the last tasks

    @property
    def _note(self) -> str:
        return f"helios/maintenance/{file_name(self.table.text)}.json"

    def _remembered(self) -> dict[str, float]:
        text = self._notes.read(self._note) if self._notes is not None else None
        try:
            return {str(kind): float(at) for kind, at in json.loads(text).items()} if text else {}
        except (ValueError, AttributeError):
            return {}  # without it, tasks only run earlier

    def _remember(self, kind: str) -> None:
        self._done[kind] = time.time()
        if self._notes is not None:
            self._notes.write(self._note, json.dumps(self._done))
