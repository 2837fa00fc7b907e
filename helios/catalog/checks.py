"""Checks a declared catalog: its name, its settings, its storage, its warehouse and its properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import own_keys
from helios.catalog.keys import Pairs, Setting, settings_problem
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES, storage_type_of
from helios.errors import DeclarationError, near_miss
from helios.model.values import Secret, is_secret

if TYPE_CHECKING:
    from helios.catalog.rows import CatalogRow
    from helios.catalog.spec import Catalog

RESERVED_NAME = "spark_catalog"
_NAME = re.compile(r"[A-Za-z0-9_]+")


def name_problem(name: object) -> str | None:
    """The problem with a catalog's name; None if there is none.

    Examples:
        >>> name_problem("prod-eu")
        "'prod-eu' is not a catalog name: use letters, digits and '_'."
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not a catalog name: use letters, digits and '_'."
    if name == RESERVED_NAME:
        return f"{name!r} is Spark's own catalog: use another name."
    return None


def type_hint(kind: object) -> str:
    """A hint for an unknown catalog type: the nearest type, or that the text is a type of storage.

    Examples:
        >>> type_hint("s3")
        "'s3' is a storage: declare [storages.NAME], and name it as the catalog's storage."
    """
    if kind in STORAGES:
        return f"{kind!r} is a storage: declare [storages.NAME], and name it as the catalog's storage."
    return near_miss(str(kind), CATALOGS)


def checked_row(catalog: Catalog) -> CatalogRow:
    """Checks a catalog's name, type, settings and storage, and returns the entry of its type in `CATALOGS`.

    Raises:
        DeclarationError: The catalog fails a check.
    """
    bad_name = name_problem(catalog.name)
    if bad_name:
        raise DeclarationError(bad_name, where=catalog.origin)
    row = CATALOGS.get(catalog.type)
    if row is None:
        raise DeclarationError(
            f"catalog type {catalog.type!r} is unknown. {type_hint(catalog.type)}", where=catalog.origin
        )
    fault = settings_problem(row.keys, dict(catalog.options)) or row.fault(dict(catalog.options))
    if fault:
        raise DeclarationError(f"catalog {catalog.name!r}: {fault[1]}", where=catalog.origin)
    if catalog.storage is not None and not isinstance(catalog.storage, Storage):
        raise DeclarationError(
            f"catalog {catalog.name!r}: storage must be a Storage, not {type(catalog.storage).__name__}.",
            where=catalog.origin,
            fix="write storage=Storage.s3(...) or another kind; the name of a storage works only in helios.toml.",
        )
    if catalog.storage is not None and catalog.storage.type not in row.storages:
        raise DeclarationError(
            f"catalog {catalog.name!r}: a {catalog.type} catalog takes no {catalog.storage.type} storage. "
            f"{near_miss(catalog.storage.type, row.storages)}",
            where=catalog.origin,
        )
    return row


def check_warehouse(catalog: Catalog, row: CatalogRow) -> None:
    """Refuses a warehouse that is missing, malformed, or not on the catalog's storage."""
    warehouse, storage = catalog.option("warehouse"), catalog.storage
    storage_type = storage_type_of(str(warehouse)) if warehouse else None
    if storage_type is not None:
        matching_storage = storage if storage is not None and storage.type == storage_type else None
        problem = STORAGES[storage_type].warehouse_problem(urlsplit(str(warehouse)), matching_storage)
        if problem:
            shown_warehouse = "" if "password" in problem else f" {warehouse}"
            raise DeclarationError(
                f"catalog {catalog.name!r}: its warehouse{shown_warehouse} {problem}.",
                where=catalog.origin,
                fix=f"write it as {STORAGES[storage_type].example}.",
            )
    if storage is not None and storage_type not in (None, storage.type):
        raise DeclarationError(
            f"catalog {catalog.name!r}: its warehouse {warehouse} is not on its {storage.type} storage.",
            where=catalog.origin,
            fix=f"give a warehouse on that storage ({STORAGES[storage.type].example}), or another storage.",
        )
    if row.needs_warehouse and not row.warehouse(catalog):
        example = STORAGES[storage.type if storage else row.storages[0]].example
        raise DeclarationError(
            f"catalog {catalog.name!r}: it needs warehouse.",
            where=catalog.origin,
            fix=f"give a warehouse, such as {example}.",
        )
    if row.needs_warehouse and warehouse and storage_type not in row.storages:
        raise DeclarationError(
            f"catalog {catalog.name!r}: its warehouse {warehouse} is on no storage that a {catalog.type} catalog "
            "takes.",
            where=catalog.origin,
            fix=f"write {' or '.join(STORAGES[storage_type].example for storage_type in row.storages)}.",
        )


def checked_properties(catalog: Catalog) -> Pairs:
    """The user's properties, sorted, with secrets as `Secret`. A property that Helios sets itself is refused."""
    set_by_helios = own_keys(catalog)
    checked: list[tuple[str, Setting]] = []
    for key, value in sorted(dict(catalog.properties).items(), key=lambda pair: str(pair[0])):
        if not isinstance(key, str) or not isinstance(value, (str, Secret)):
            raise DeclarationError(
                f"catalog {catalog.name!r}: property {key!r} must be text, not {type(value).__name__}.",
                where=catalog.origin,
                fix='write properties={"key": "value"}.',
            )
        if key in set_by_helios:
            raise DeclarationError(
                f"catalog {catalog.name!r}: property {key!r} is set by Helios for a {catalog.type} catalog.",
                where=catalog.origin,
                fix="leave it out.",
            )
        is_secret_value = isinstance(value, str) and is_secret(key, value)
        checked.append((key, Secret(value) if is_secret_value and isinstance(value, str) else value))
    return tuple(checked)
