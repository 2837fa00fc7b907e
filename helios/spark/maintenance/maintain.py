"""Expiry, orphan files, branches and tags with Iceberg's actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.conf import components, spark_conf, warehouse
from helios.catalog.connections import prepare
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.config import Config
from helios.errors import InputError, RunError
from helios.model.maintenance import orphan_age
from helios.model.values import caller
from helios.spark.jvm.sql import literal
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.updates import JavaExpiry
from helios.spark.maintenance.compact import (
    actions,
    conflict_reason,
    failure,
    load_existing,
)
from helios.spark.session import session
from helios.table.maintenance import Expiry
from helios.table.refs import RefChange

E = TypeVar("E", bound=JavaExpiry)


@dataclass(frozen=True)
class Expired:
    """The result of an expiry: the ids of the expired snapshots, and numbers of deleted files; None if not counted."""

    table: str
    snapshots: tuple[int, ...]
    data_files: int | None = None
    delete_files: int | None = None
    manifests: int | None = None
    manifest_lists: int | None = None


@dataclass(frozen=True)
class Orphans:
    """The files in a table's folder that no snapshot references."""

    table: str
    files: tuple[str, ...]
    deleted: bool


def open_session(config: Config, *catalogs: Catalog, debug: bool = False) -> SparkSession:
    """Starts a Spark session that knows some catalogs.

    Raises:
        EnvironmentProblem: Java or a jar is missing, or Spark does not start.
    """
    needed = tuple(dict.fromkeys(jar for catalog in catalogs for jar in components(catalog)))
    spark = session.start(config, needed, debug=debug)
    for catalog in catalogs:
        prepare(catalog)
        for key, value in spark_conf(catalog).items():
            spark.conf.set(key, value)
    return spark


# snapshots and files


def expire(spark: SparkSession, name: TableName, expiry: Expiry, *, on_driver: bool = False) -> Expired:
    """Expires the planned snapshots, and deletes the files that no other snapshot references.

    Args:
        spark: A session with the table's catalog.
        on_driver: Whether the driver finds the files to delete, instead of a Spark job. This is faster for few files,
            but the deleted files are not counted.

    Raises:
        InputError: A branch's own retention would also expire a snapshot that a reader needs.
        RunError: The table was changed meanwhile, or Spark or the catalog failed.
    """
    ids = [snapshot.id for snapshot in expiry.snapshots]
    if not ids:
        return Expired(name.text, (), data_files=0, delete_files=0, manifests=0, manifest_lists=0)
    table = load_existing(spark, name)
    try:
        # The retention of a single branch may expire more snapshots than planned.
        expiring = {int(snapshot.snapshotId()) for snapshot in _only(table.expireSnapshots(), ids).apply()}
        endangered = sorted((expiring - set(ids)) & expiry.needed)
        if endangered:
            raise InputError(
                f"the retention that a branch of {name.text} declares for itself would expire snapshot "
                f"{endangered[0]}, which a reader needs; nothing was expired.",
                where=caller(),
                fix="raise max-snapshot-age-ms or min-snapshots-to-keep of the branch, or let the reader catch up.",
            )
        if on_driver:
            _only(table.expireSnapshots(), ids).commit()
            return Expired(name.text, tuple(sorted(expiring)))
        result = _only(actions(spark).expireSnapshots(table), ids).execute()
    except (Py4JJavaError, PySparkException) as error:
        if "Still referenced by refs" in str(error) or conflict_reason(error) is not None:
            raise RunError(
                f"table {name.text} was changed by another writer meanwhile; nothing was expired.",
                fix="repeat the command.",
            ) from error
        raise failure(name, "expiry", error) from error
    deletes = int(result.deletedPositionDeleteFilesCount()) + int(result.deletedEqualityDeleteFilesCount())
    return Expired(
        name.text,
        tuple(sorted(expiring)),
        data_files=int(result.deletedDataFilesCount()),
        delete_files=deletes,
        manifests=int(result.deletedManifestsCount()),
        manifest_lists=int(result.deletedManifestListsCount()),
    )


def _only(expiry: E, ids: list[int]) -> E:
    """Limits an expiry to these snapshots: by age and number, the expiry then selects no others."""
    expiry = expiry.expireOlderThan(0).retainLast(2**31 - 1)
    for snapshot in ids:
        expiry = expiry.expireSnapshotId(snapshot)
    return expiry


def remove_orphans(spark: SparkSession, name: TableName, older_than: float, *, dry_run: bool = False) -> Orphans:
    """Deletes the files in a table's folder that no snapshot of any branch references.

    Args:
        spark: A session with the table's catalog, in UTC.
        older_than: Seconds; younger files stay, since they may be part of a commit under way.
        dry_run: Whether the files are only listed, and not deleted.

    Raises:
        DeclarationError: The age is less than a day.
        InputError: The folder also holds another table, or a checkpoint.
    """
    older_than = orphan_age(older_than, "older_than")
    table = load_existing(spark, name)
    _refuse_shared_folder(name, str(table.location()))
    before = datetime.now(UTC) - timedelta(seconds=older_than)

    def remove(*, dry: bool) -> tuple[str, ...]:
        rows = spark.sql(
            f"CALL `{name.catalog.name}`.system.remove_orphan_files(table => {literal(name.sql_name_in_catalog)}, "
            f"older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}', dry_run => {str(dry).lower()})"
        ).collect()
        return tuple(sorted(row[0] for row in rows))

    try:
        files = remove(dry=True)
        _refuse_checkpoints(name, table, files)
        files = remove(dry=False) if files and not dry_run else files
    except (Py4JJavaError, PySparkException) as error:
        raise failure(name, "search for orphan files", error) from error
    return Orphans(name.text, files, deleted=not dry_run)


BUCKETS = ("s3", "s3a", "s3n", "gs")
"""The schemes whose locations begin with the name of a bucket."""


def _refuse_shared_folder(name: TableName, location: str) -> None:
    """Refuses a folder that also holds other tables, such as those of a namespace named like the table."""
    folder = _bucket_and_path(f"{location.rstrip('/')}/")
    other_locations = [(warehouse(name.catalog) or "").rstrip("/") + "/_helios"]
    namespaces = [n for n in name.catalog.namespaces() if f"{n}.".startswith(f"{name.name_in_catalog}.")]
    tables = [table for namespace in namespaces for table in name.catalog.tables(namespace)]
    other_locations += [str(name.catalog.load(table).iceberg.location()) for table in tables]
    shared = next((other for other in other_locations if _bucket_and_path(f"{other}/").startswith(folder)), None)
    if shared is not None:
        raise InputError(
            f"the folder {location} of {name.text} also holds {shared}, whose files would be taken for orphans.",
            fix="delete orphan files by hand.",
        )


def _bucket_and_path(location: str) -> str:
    """The bucket (if there is one) and the path: a folder may be written in several ways, as file:/a and file:///a."""
    parts = urlsplit(location)
    return (parts.netloc if parts.scheme in BUCKETS else "") + parts.path


def _refuse_checkpoints(name: TableName, table: JavaTable, files: Iterable[str]) -> None:
    """Refuses a folder that also holds a checkpoint, since no snapshot references the files of a checkpoint."""
    location = str(table.location()).rstrip("/")
    own_folders = tuple(_path(f"{location}/{part}/") for part in ("data", "metadata"))
    folders = {folder for file in files for folder in _folders_of(file, urlsplit(location).path)}
    for folder in sorted(folder for folder in folders if not _path(f"{folder}/").startswith(own_folders)):
        if table.io().newInputFile(f"{folder}/helios/identity.json").exists():
            raise InputError(
                f"the folder {location} of {name.text} also holds the checkpoint {folder}, whose files would be taken "
                "for orphans.",
                fix="give the pipeline a .checkpoint(...) elsewhere, or delete orphan files by hand.",
            )


def _folders_of(file: str, top: str) -> Iterator[str]:
    """The folders that contain a file, from the innermost up to the one directly below the folder `top`."""
    folder = file.rpartition("/")[0]
    while len(_path(folder)) > len(top):
        yield folder
        folder = folder.rpartition("/")[0]


def _path(location: str) -> str:
    """The path of a location, without the scheme: one file system may have several, such as s3 and s3a."""
    return urlsplit(location).path


# branches and tags


def change_ref(spark: SparkSession, name: TableName, change: RefChange) -> None:
    """Changes a branch or a tag through Iceberg's Java API, for tables whose metadata PyIceberg cannot write.

    Raises:
        RunError: The commit failed: the table was changed meanwhile, or the catalog is unavailable.
    """
    snapshots = load_existing(spark, name).manageSnapshots()
    try:
        REF_CHANGES[change.action](snapshots, change).commit()
    except (Py4JJavaError, PySparkException) as error:
        raise failure(name, change.action.replace("_", " "), error) from error


REF_CHANGES: dict[str, Any] = {
    "create_tag": lambda snapshots, change: snapshots.createTag(change.name, change.snapshot),
    "create_branch": lambda snapshots, change: snapshots.createBranch(change.name, change.snapshot),
    "remove_tag": lambda snapshots, change: snapshots.removeTag(change.name),
    "remove_branch": lambda snapshots, change: snapshots.removeBranch(change.name),
    "set_main": lambda snapshots, change: snapshots.setCurrentSnapshot(change.snapshot),
}
"""The Iceberg method for each `RefChange.action`."""
