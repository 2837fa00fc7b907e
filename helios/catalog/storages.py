"""The table of storages, and what rows of catalogs and storages are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from helios.errors import near_miss
from helios.model.values import Secret

if TYPE_CHECKING:
    from helios.catalog.spec import Storage

Value: TypeAlias = str | Secret
Pairs: TypeAlias = tuple[tuple[str, Value], ...]

# SQLAlchemy, PyIceberg and SQLite's driver cut or decode paths at these, each in its own way.
UNUSABLE_IN_PATHS = "?#%"


@dataclass(frozen=True)
class Key:
    """One setting of a row.

    Args:
        name: As in the factory's argument and in helios.toml.
        about: What it is, for the docs.
        required: Whether it must be given.
        secret: Whether its value becomes a `Secret`.
        path: Whether it is a local path, made absolute where it is declared.
        default: The value when none is given, from the catalog's name and the project's folder.
    """

    name: str
    about: str
    required: bool = False
    secret: bool = False
    path: bool = False
    default: Callable[[str, Path], str] | None = None


@dataclass(frozen=True)
class StorageRow:
    """All that Helios knows of one kind of storage.

    Args:
        keys: Its settings.
        spark: Its Spark conf, with keys relative to the catalog's prefix.
        pyiceberg: Its PyIceberg properties.
        warehouse: The URI of a warehouse on it when the catalog names none; None if it cannot tell.
        components: Jar components that it needs.
        gaps: What it cannot do, for the docs.
    """

    keys: tuple[Key, ...]
    spark: Callable[[Storage], dict[str, Value]]
    pyiceberg: Callable[[Storage], dict[str, Value]]
    warehouse: Callable[[Storage], str | None]
    components: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


def file_uri(path: str | Path) -> str:
    """An absolute path as the URI that Spark and PyIceberg both take literally: not percent-encoded.

    Examples:
        >>> file_uri("/data/my lake")
        'file:///data/my lake'
    """
    return "file://" + "/" + Path(path).as_posix().lstrip("/")


def problem(keys: Iterable[Key], given: Mapping[str, object], required: bool = True) -> tuple[str | None, str] | None:
    """The first thing wrong with some settings: the key, if one is to blame, and a sentence; None if all is well.

    Examples:
        >>> problem(STORAGES["local"].keys, {"pth": "/data"})
        ('pth', "unknown key 'pth'. Did you mean 'path'?")
    """
    known = {key.name: key for key in keys}
    for name, value in given.items():
        if name not in known:
            return name, f"unknown key {name!r}. {near_miss(name, known)}"
        if not isinstance(value, (str, Secret)):
            return name, f"{name} must be text, not {type(value).__name__}."
        text = value.reveal() if isinstance(value, Secret) else value
        if not text.strip():
            return name, f"{name} must not be empty."
        bad = next((c for c in text if c in UNUSABLE_IN_PATHS), None) if known[name].path else None
        if bad:
            return name, f"{name} {text!r} must not hold {bad!r}: PyIceberg and SQLite's driver read it as a URL."
    missing = next((key.name for key in known.values() if key.required and key.name not in given), None)
    return (None, f"it needs {missing}.") if required and missing else None


def complete(keys: Iterable[Key], given: Mapping[str, Value], name: str, here: Path, home: Callable[[], Path]) -> Pairs:
    """Settings in the row's order, with defaults filled in, paths absolute and secrets wrapped.

    Args:
        keys: The row's keys.
        given: The settings, already free of problems.
        name: The name that defaults are made from.
        here: What relative paths are relative to.
        home: Gives the project's folder, asked only for a default.
    """
    pairs: list[tuple[str, Value]] = []
    for key in keys:
        value = given.get(key.name)
        if value is None:
            if key.default is None:
                continue
            value = key.default(name, home())
        if key.path and isinstance(value, str):
            value = os.path.abspath(here / Path(value).expanduser())
        pairs.append((key.name, Secret(value) if key.secret and isinstance(value, str) else value))
    return tuple(pairs)


def _nothing(storage: Storage) -> dict[str, Value]:
    return {}


STORAGES: Mapping[str, StorageRow] = {
    "local": StorageRow(
        keys=(Key("path", "the folder that holds the warehouse", required=True, path=True),),
        spark=_nothing,
        pyiceberg=_nothing,
        warehouse=lambda storage: file_uri(str(storage.option("path"))),
        gaps=("on a cluster, every machine must see the path",),
    ),
}
"""Every storage; S3, ADLS and GCS join as further rows."""
