"""Checks the shape of a configuration: its tables, its keys and the types of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from helios.catalog.catalogs import CATALOGS
from helios.catalog.checks import name_problem, type_hint
from helios.catalog.keys import settings_problem
from helios.catalog.rows import CatalogRow, StorageRow
from helios.catalog.storages import STORAGES
from helios.config.document import Document
from helios.config.tree import KeyPath, Tree, merge
from helios.errors import near_miss

NATIVE = ("auto", "off", "require")
"""The values of `[spark] native`, which selects the columnar engine."""

_SECTIONS = ("default_catalog", "catalogs", "storages", "spark")


def base_and_profiles(document: Document) -> tuple[Tree, dict[str, Tree]]:
    """Checks a document. Returns the settings outside of profiles, and the settings of each profile by its name.

    The tables `properties` and `conf` are flattened. The catalog `local` is always among the settings.
    """
    _check_keys(document, (), document.tree, (*_SECTIONS, "profiles"))
    profiles = _as_table(document, ("profiles",), document.tree.get("profiles", {}))
    base_settings = {key: value for key, value in document.tree.items() if key != "profiles"}
    checked_base = _checked_sections(document, (), base_settings)
    checked_profiles = {}
    for name, value in profiles.items():
        path = ("profiles", name)
        _check_keys(document, path, _as_table(document, path, value), _SECTIONS)
        checked_profiles[name] = _checked_sections(document, path, value)
    return merge({"catalogs": {"local": {"type": "local"}}}, checked_base), checked_profiles


def _checked_sections(document: Document, parent: KeyPath, tree: Tree) -> Tree:
    """Checks the tables and keys below the path `parent`, which is the path of a profile, or empty for the base."""
    checked: Tree = {}
    if "default_catalog" in tree:
        checked["default_catalog"] = _as_text(document, (*parent, "default_catalog"), tree["default_catalog"])
    for section in ("catalogs", "storages"):
        entries = _as_table(document, (*parent, section), tree.get(section, {}))
        for name, entry in entries.items():
            path = (*parent, section, name)
            problem = name_problem(name) if section == "catalogs" else None
            if problem:
                raise document.error(path, problem)
            settings = dict(_as_table(document, path, entry))
            for key in ("type", "storage"):
                if key in settings:
                    _as_text(document, (*path, key), settings[key])
            if section == "catalogs" and "properties" in settings:
                settings["properties"] = _flattened(document, (*path, "properties"), settings["properties"])
            checked.setdefault(section, {})[name] = settings
    if "spark" in tree:
        path = (*parent, "spark")
        spark = dict(_as_table(document, path, tree["spark"]))
        _check_keys(document, path, spark, ("master", "conf", "native"))
        if "master" in spark:
            _as_text(document, (*path, "master"), spark["master"])
        if "native" in spark and _as_text(document, (*path, "native"), spark["native"]) not in NATIVE:
            raise document.error((*path, "native"), f"must be one of {', '.join(NATIVE)}, not {spark['native']!r}.")
        if "conf" in spark:
            spark["conf"] = _flattened(document, (*path, "conf"), spark["conf"])
        checked["spark"] = spark
    return checked


def _flattened(document: Document, path: KeyPath, value: object, prefix: str = "") -> Tree:
    """Flattens nested tables to dotted keys: `spark.sql.x = 1` is a nested table for TOML, but one key for Spark."""
    flat: Tree = {}
    for key, inner in _as_table(document, path, value).items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            flat.update(_flattened(document, (*path, key), inner, f"{name}."))
        elif isinstance(inner, bool):
            flat[name] = str(inner).lower()
        elif isinstance(inner, (str, int, float)):
            flat[name] = str(inner)
        else:
            raise document.error((*path, key), f"must be text, a number or a boolean, not {_type_name(inner)}.")
    return flat


def check_catalogs_and_storages(document: Document, tree: Tree, *, final: bool) -> None:
    """Checks that catalogs and storages have the settings of their types.

    `final` is true for merged and expanded settings. Otherwise settings may be missing, and may contain `${NAME}`.
    """
    sections: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
        ("catalogs", CATALOGS, ("type", "storage", "properties")),
        ("storages", STORAGES, ("type",)),
    )
    for section, types, common_keys in sections:
        for name, settings in tree.get(section, {}).items():
            path = (section, name)
            type_name = settings.get("type")
            if type_name is None:
                if final:
                    raise document.error(path, "it needs a type.", fix=f"set it to one of {', '.join(sorted(types))}.")
                continue
            if type_name not in types:
                if not final and "${" in type_name:
                    continue
                hint = type_hint(type_name) if section == "catalogs" else near_miss(type_name, types)
                raise document.error((*path, "type"), f"type {type_name!r} is unknown. {hint}")
            row: CatalogRow | StorageRow = types[type_name]
            _check_keys(document, path, settings, (*common_keys, *(key.name for key in row.keys)))
            own_settings = {key: value for key, value in settings.items() if key not in common_keys}
            fault = settings_problem(row.keys, own_settings, final)
            if fault is None and final:
                fault = row.fault(own_settings)
            if fault is not None:
                key, sentence = fault
                raise document.error((*path, key) if key else path, sentence)


def _check_keys(document: Document, path: KeyPath, tree: Tree, keys: Iterable[str]) -> None:
    known_keys = tuple(keys)
    for key in tree:
        if key not in known_keys:
            raise document.error((*path, key), f"unknown key {key!r}. {near_miss(key, known_keys)}")


def _as_table(document: Document, path: KeyPath, value: object) -> Tree:
    if not isinstance(value, dict):
        raise document.error(path, f"must be a table, not {_type_name(value)}.", fix=f"write [{'.'.join(path)}].")
    return value


def _as_text(document: Document, path: KeyPath, value: object) -> str:
    if not isinstance(value, str):
        raise document.error(path, f"must be text, not {_type_name(value)}.")
    if not value.strip():
        raise document.error(path, "must not be empty.")
    return value


def _type_name(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table", str: "text"}
    return names.get(type(value), f"a {type(value).__name__}")
