"""The embedded catalogs: a SQLite file in a folder, persistent or temporary."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from helios.catalog.home import STATE_FOLDER
from helios.catalog.keys import Key, Value
from helios.catalog.rows import CatalogRow, MetadataMove, Mover
from helios.catalog.storages import STORAGES, file_uri
from helios.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyCatalog

    from helios.catalog.spec import Catalog

BUSY_SECONDS = 60
"""How long a commit waits for other commits. SQLite's default of 3 s is too short for several pipelines."""


def _default_folder(name: str, project: Path) -> str:
    # Each catalog has its own folder: in a shared folder, tables with equal names would share files.
    return str(project / STATE_FOLDER if name == "local" else project / STATE_FOLDER / "catalogs" / name)


def _declared_folder(catalog: Catalog) -> Path:
    return Path(str(catalog.option("path")))


@cache
def _temporary_folder(name: str, process: int) -> Path:
    import secrets
    import tempfile

    return Path(tempfile.gettempdir()) / f"helios-{name}-{process}-{secrets.token_hex(8)}"


def _memory_folder(catalog: Catalog) -> Path:
    return _temporary_folder(catalog.name, os.getpid())


def _settings(folder: Callable[[Catalog], Path]) -> dict[str, Callable[[Catalog], dict[str, Value]]]:
    """The functions `spark` and `pyiceberg` of the `CatalogRow` of a SQLite catalog in the given folder."""

    def warehouse(catalog: Catalog) -> str:
        declared, storage = catalog.option("warehouse"), catalog.storage
        if declared:
            return str(declared)
        if storage is None:
            return file_uri(folder(catalog) / "warehouse")
        return STORAGES[storage.type].warehouse(storage) or ""

    def spark(catalog: Catalog) -> dict[str, Value]:
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{(folder(catalog) / 'catalog.db').as_posix()}",
            "jdbc.schema-version": "V1",
            "jdbc.busy_timeout": str(BUSY_SECONDS * 1000),
            "warehouse": warehouse(catalog),
        }

    def pyiceberg(catalog: Catalog) -> dict[str, Value]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{(folder(catalog) / 'catalog.db').as_posix()}?timeout={BUSY_SECONDS}",
            "warehouse": warehouse(catalog),
        }

    return {"spark": spark, "pyiceberg": pyiceberg}


def _local_warehouse(catalog: Catalog) -> str:
    return str(_LOCAL["spark"](catalog)["warehouse"])


# These are the tables that Iceberg's JdbcUtil (schema V1) and PyIceberg's SqlCatalog create.
_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) "
    "NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location "
    "VARCHAR(1000), iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace "
    "VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), "
    "PRIMARY KEY (catalog_name, namespace, property_key))",
)


def _prepare(catalog: Catalog, folder: Path) -> None:
    import sqlite3

    # The SQLite drivers do not create the folder. The tables are created here too: if two Spark sessions created them
    # at the same time, the ALTER TABLE of the second one would fail.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(folder / "catalog.db", timeout=BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _CREATE_TABLES:
                db.execute(statement)
            db.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        # A catalog in memory has no setting `path`.
        setting = "TMPDIR" if catalog.type == "memory" else "path="
        raise EnvironmentProblem(
            f"catalog {catalog.name!r} cannot be created in {folder}: {error}.",
            where=catalog.origin,
            fix=f"set {setting} to a folder that you can write to.",
        ) from error


def _mover(folder: Callable[[Catalog], Path]) -> Mover:
    """Returns a function that replaces the metadata files of several tables in one transaction.

    Each table is changed by the same conditional update that Iceberg's JDBC catalog uses.
    """

    def move(catalog: Catalog, tables: Sequence[MetadataMove], connect: Callable[[Catalog], PyCatalog]) -> bool:
        import sqlite3

        with closing(sqlite3.connect(folder(catalog) / "catalog.db", timeout=BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            for table in tables:
                row = (catalog.name, ".".join(table.namespace), table.table, table.before)
                if db.execute(_REPLACE_METADATA, (table.after, table.before, *row)).rowcount != 1:
                    db.execute("ROLLBACK")
                    return False
            db.execute("COMMIT")
            return True

    return move


_REPLACE_METADATA = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE catalog_name = ? AND "
    "table_namespace = ? AND table_name = ? AND metadata_location = ? AND (iceberg_type = 'TABLE' OR iceberg_type IS "
    "NULL)"
)


def _prepare_memory(catalog: Catalog) -> None:
    folder = _memory_folder(catalog)
    if not folder.exists():
        folder.mkdir(mode=0o700)
        atexit.register(_remove, folder, os.getpid())
    _prepare(catalog, folder)


def _remove(folder: Path, owner: int) -> None:
    # A forked child must not remove its parent's tables.
    if os.getpid() == owner:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


_LOCAL = _settings(_declared_folder)
_MEMORY = _settings(_memory_folder)

LOCAL = CatalogRow(
    keys=(
        Key("path", "the folder of catalog.db and warehouse/", path=True, default=_default_folder),
        Key("warehouse", "the URI of a warehouse elsewhere, on the `storage`"),
    ),
    spark=_LOCAL["spark"],
    pyiceberg=_LOCAL["pyiceberg"],
    warehouse=_local_warehouse,
    components=("iceberg", "sqlite"),
    storages=("local", "s3", "adls", "gcs"),
    prepare=lambda catalog: _prepare(catalog, _declared_folder(catalog)),
    database=lambda catalog: _declared_folder(catalog) / "catalog.db",
    move=_mover(_declared_folder),
    needs_warehouse=True,
    gaps=(
        "on a cluster, every machine must see the path",
        "a namespace part with a dot is the same as two parts",
        "the path must not contain '?', '#' or '%'",
    ),
)
MEMORY = CatalogRow(
    keys=(),
    spark=_MEMORY["spark"],
    pyiceberg=_MEMORY["pyiceberg"],
    warehouse=lambda catalog: None,
    components=("iceberg", "sqlite"),
    prepare=_prepare_memory,
    database=lambda catalog: _memory_folder(catalog) / "catalog.db",
    move=_mover(_memory_folder),
    temporary=True,
    gaps=(
        "lives in a temporary folder of the process, so that Spark and PyIceberg see the same tables; a killed "
        "process leaves the folder behind",
        "on a cluster, every machine must see that folder",
    ),
)
