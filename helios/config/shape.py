"""The shape of a configuration: its allowed tables, keys and types of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from helios.catalog.catalogs import CATALOGS
from helios.catalog.checks import name_problem, type_hint
from helios.catalog.keys import problem
from helios.catalog.rows import CatalogRow, StorageRow
from helios.catalog.storages import STORAGES
from helios.config.document import Document
from helios.config.tree import KeyPath, Tree, merge
from helios.errors import near_miss

NATIVE = ("auto", "off", "require")
"""The values of `[spark] native`, which selects the columnar engine."""

_SECTIONS = ("default_catalog", "catalogs", "storages", "spark")


def shape(document: Document) -> tuple[Tree, dict[str, Tree]]:
    """The base and the profiles, with all tables and keys checked, and `properties` and `conf` flattened."""
    _known(document, (), document.tree, (*_SECTIONS, "profiles"))
    profiles = _table(document, ("profiles",), document.tree.get("profiles", {}))
    base = {key: value for key, value in document.tree.items() if key != "profiles"}
    shaped = _sections(document, (), base)
    overrides = {}
    for name, value in profiles.items():
        path = ("profiles", name)
        _known(document, path, _table(document, path, value), _SECTIONS)
        overrides[name] = _sections(document, path, value)
    return merge({"catalogs": {"local": {"type": "local"}}}, shaped), overrides


def _sections(document: Document, at: KeyPath, tree: Tree) -> Tree:
    shaped: Tree = {}
    if "default_catalog" in tree:
        shaped["default_catalog"] = _text(document, (*at, "default_catalog"), tree["default_catalog"])
    for section in ("catalogs", "storages"):
        entries = _table(document, (*at, section), tree.get(section, {}))
        for name, entry in entries.items():
            path = (*at, section, name)
            wrong = name_problem(name) if section == "catalogs" else None
            if wrong:
                raise document.error(path, wrong)
            settings = dict(_table(document, path, entry))
            for key in ("type", "storage"):
                if key in settings:
                    _text(document, (*path, key), settings[key])
            if section == "catalogs" and "properties" in settings:
                settings["properties"] = _flat(document, (*path, "properties"), settings["properties"])
            shaped.setdefault(section, {})[name] = settings
    if "spark" in tree:
        path = (*at, "spark")
        spark = dict(_table(document, path, tree["spark"]))
        _known(document, path, spark, ("master", "conf", "native"))
        if "master" in spark:
            _text(document, (*path, "master"), spark["master"])
        if "native" in spark and _text(document, (*path, "native"), spark["native"]) not in NATIVE:
            raise document.error((*path, "native"), f"must be one of {', '.join(NATIVE)}, not {spark['native']!r}.")
        if "conf" in spark:
            spark["conf"] = _flat(document, (*path, "conf"), spark["conf"])
        shaped["spark"] = spark
    return shaped


def _flat(document: Document, path: KeyPath, value: object, prefix: str = "") -> Tree:
    """Nested tables as one table with dotted keys: `spark.sql.x = 1` is nested for TOML, and one key for Spark."""
    flat: Tree = {}
    for key, inner in _table(document, path, value).items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            flat.update(_flat(document, (*path, key), inner, f"{name}."))
        elif isinstance(inner, bool):
            flat[name] = str(inner).lower()
        elif isinstance(inner, (str, int, float)):
            flat[name] = str(inner)
        else:
            raise document.error((*path, key), f"must be text, a number or a boolean, not {_kind(inner)}.")
    return flat


def check_rows(document: Document, tree: Tree, *, required: bool) -> None:
    """Checks catalogs and storages by the rows of their types; without `required`, values may contain `${NAME}`."""
    rows: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
        ("catalogs", CATALOGS, ("type", "storage", "properties")),
        ("storages", STORAGES, ("type",)),
    )
    for section, known, common in rows:
        for name, settings in tree.get(section, {}).items():
            path = (section, name)
            kind = settings.get("type")
            if kind is None:
                if required:
                    raise document.error(path, "it needs a type.", fix=f"add type = one of {', '.join(sorted(known))}.")
                continue
            if kind not in known:
                if not required and "${" in kind:
                    continue
                hint = type_hint(kind) if section == "catalogs" else near_miss(kind, known)
                raise document.error((*path, "type"), f"type {kind!r} is unknown. {hint}")
            row: CatalogRow | StorageRow = known[kind]
            _known(document, path, settings, (*common, *(key.name for key in row.keys)))
            of_row = {key: value for key, value in settings.items() if key not in common}
            fault = problem(row.keys, of_row, required)
            if fault is None and required:
                fault = row.fault(of_row)
            if fault is not None:
                key, sentence = fault
                raise document.error((*path, key) if key else path, sentence)


def _known(document: Document, path: KeyPath, tree: Tree, known: Iterable[str]) -> None:
    names = tuple(known)
    for key in tree:
        if key not in names:
            raise document.error((*path, key), f"unknown key {key!r}. {near_miss(key, names)}")


def _table(document: Document, path: KeyPath, value: object) -> Tree:
    if not isinstance(value, dict):
        raise document.error(path, f"must be a table, not {_kind(value)}.", fix=f"write [{'.'.join(path)}].")
    return value


def _text(document: Document, path: KeyPath, value: object) -> str:
    if not isinstance(value, str):
        raise document.error(path, f"must be text, not {_kind(value)}.")
    if not value.strip():
        raise document.error(path, "must not be empty.")
    return value


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table", str: "text"}
    return names.get(type(value), f"a {type(value).__name__}")
