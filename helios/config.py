"""helios.toml (or `[tool.helios]` in pyproject.toml): catalogs, storages, Spark and profiles, and how names resolve."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from helios.catalog.catalogs import CATALOGS
from helios.catalog.checks import name_problem, not_a_type
from helios.catalog.home import CONFIG_FILE, find_config
from helios.catalog.keys import complete, problem
from helios.catalog.names import TableName
from helios.catalog.rows import CatalogRow, StorageRow
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES
from helios.errors import ConfigError, DeclarationError, NotFound, Origin, near_miss
from helios.model.values import Identifier

Path_: TypeAlias = tuple[str, ...]
Tree: TypeAlias = dict[str, Any]

DEFAULT_CATALOG = "local"
DEFAULT_MASTER = "local[*]"
PROFILE_VARIABLE = "HELIOS_PROFILE"
_SECTIONS = ("default_catalog", "catalogs", "storages", "spark")
_VARIABLE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


@dataclass(frozen=True)
class Config:
    """What holds for a script.

    Args:
        root: The folder of the file; the working directory if there is none.
        file: helios.toml or pyproject.toml, if there is one.
        default_catalog: The catalog of names of two parts.
        catalogs: The declared catalogs; `local` always is.
        storages: The declared storages.
        master: Spark's master.
        spark_conf: Spark's conf.
        profile: The profile that was chosen.
    """

    root: Path
    file: Path | None
    default_catalog: str
    catalogs: dict[str, Catalog]
    storages: dict[str, Storage]
    master: str
    spark_conf: dict[str, str] = field(repr=False)
    profile: str | None


def load(start: Path, profile: str | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """Reads the configuration that holds for a script.

    Args:
        start: The script, or its folder.
        profile: The profile; by default the one that HELIOS_PROFILE names.
        env: Where `${NAME}` is looked up.

    Raises:
        ConfigError: The file, the profile or a variable is wrong.
    """
    folder = Path(start).absolute()
    file = find_config(folder.parent if folder.is_file() else folder)
    document = _Document.read(file)
    chosen = profile or env.get(PROFILE_VARIABLE) or None
    base, profiles = _shape(document)
    if chosen is not None and chosen not in profiles:
        raise ConfigError(
            f"profile {chosen!r} is unknown. {near_miss(chosen, profiles)}",
            where=document.origin(("profiles",)) if file else None,
            fix=f"declare [profiles.{chosen}] in {file.name if file else CONFIG_FILE}.",
        )
    for name, overrides in ((None, {}), *profiles.items()):
        _check_rows(document.for_profile(name), merge(base, overrides), required=False)
    document = document.for_profile(chosen)
    tree = expand(merge(base, profiles.get(chosen or "", {})), env, document.error)
    _check_rows(document, tree, required=True)
    return _build(document, tree, chosen)


def resolve(
    identifier: Identifier,
    catalog: Catalog | str | None,
    script_catalogs: Mapping[str, Catalog],
    config: Config,
    where: Origin,
) -> TableName:
    """The table that a name means.

    Args:
        identifier: The name as it was written.
        catalog: What was given as `catalog=`; then all parts are namespace and table.
        script_catalogs: The catalogs that the script declares, by their names; they come before the configuration's.
        config: The configuration.
        where: The line that wrote the name.

    Raises:
        NotFound: The catalog is not declared.
    """
    declared = {**config.catalogs, **script_catalogs}
    parts = identifier.parts
    if isinstance(catalog, Catalog):
        chosen = catalog
    elif catalog is not None:
        chosen = _declared(catalog, declared, where, f"catalog={catalog!r}: ")
    elif len(parts) > 2:
        namespace = f' If it is a namespace, pass catalog="{config.default_catalog}".'
        chosen = _declared(parts[0], declared, where, f"{identifier}: ", namespace)
        parts = parts[1:]
    else:
        chosen = _declared(config.default_catalog, declared, where, f"{identifier}: the default ")
    return TableName(chosen, parts[:-1], parts[-1])


def _declared(name: str, declared: Mapping[str, Catalog], where: Origin, what: str, remedy: str = "") -> Catalog:
    if name in declared:
        return declared[name]
    raise NotFound(
        f"{what}catalog {name!r} is not declared. {near_miss(name, declared)}",
        where=where,
        fix=f"declare it in the script, or as [catalogs.{name}] in {CONFIG_FILE}.{remedy}",
    )


# Merging and variables


def merge(base: Tree, overrides: Tree) -> Tree:
    """A profile over the base: tables are merged key by key, everything else is replaced.

    A table that changes its `type` is replaced whole: the settings of another type mean nothing to it.

    Examples:
        >>> merge({"spark": {"master": "local[*]", "conf": {"a": "1"}}}, {"spark": {"conf": {"b": "2"}}})
        {'spark': {'master': 'local[*]', 'conf': {'a': '1', 'b': '2'}}}
    """
    kind = overrides.get("type")
    if isinstance(kind, str) and base.get("type", kind) != kind:
        return overrides
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def expand(value: Any, env: Mapping[str, str], error: Callable[..., ConfigError], path: Path_ = ()) -> Any:
    """Replaces `${NAME}` and `${NAME:-default}` in every text; `$${` stands for `${`.

    As in a shell, the default also stands for an empty variable. What is put in is not looked at again.

    Raises:
        ConfigError: A variable that is not set, or a `${` that is no variable.
    """
    if isinstance(value, dict):
        return {key: expand(inner, env, error, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [expand(inner, env, error, path) for inner in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "${"
        body = _BODY.fullmatch(match["body"])
        if not match["end"] or body is None or "${" in (body["default"] or ""):
            raise error(
                path, "holds a '${' that is no variable.", fix="write ${NAME} or ${NAME:-default}; $${ is a plain ${."
            )
        name, default = body["name"], body["default"]
        if default is not None:
            return env.get(name) or default.removeprefix(":-")
        if name not in env:
            raise error(
                path,
                f"the environment variable {name!r} is not set.",
                fix=f"set {name}, or give a default: ${{{name}:-value}}.",
            )
        return env[name]

    return _VARIABLE.sub(replace, value)


# The file


@dataclass(frozen=True)
class _Document:
    """A configuration file, and where in it things stand."""

    file: Path | None
    tree: Tree
    lines: Mapping[Path_, int]
    profile: str | None = None

    @classmethod
    def read(cls, file: Path | None) -> _Document:
        if file is None:
            return cls(None, {}, {})
        try:
            text = file.read_bytes().decode("utf-8-sig")
            tree = tomllib.loads(text)
        except OSError as error:
            raise ConfigError(f"{_shown(file)} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{_shown(file)} is not UTF-8: {error.reason}.", fix="save it as UTF-8.") from error
        except tomllib.TOMLDecodeError as error:
            told = re.search(r"\(at line (\d+)", str(error))
            line = int(told[1]) if told else text.count("\n") + 1
            raise ConfigError(f"not TOML: {error}.", where=Origin(_shown(file), line)) from error
        prefix: Path_ = () if file.name == CONFIG_FILE else ("tool", "helios")
        for key in prefix:
            tree = tree[key]
        document = cls(file, tree, _lines(text, prefix))
        if not isinstance(tree, dict):
            raise document.error((), "tool.helios must be a table.")
        return document

    def for_profile(self, name: str | None) -> _Document:
        return _Document(self.file, self.tree, self.lines, name)

    def origin(self, path: Path_) -> Origin | None:
        """The line of a key: the profile's before the base's, else of the nearest table around it."""
        if self.file is None:
            return None
        while path:
            for candidate in (("profiles", self.profile or "", *path), path):
                if candidate in self.lines:
                    return Origin(_shown(self.file), self.lines[candidate])
            path = path[:-1]
        return None

    def error(self, path: Path_, what: str, fix: str | None = None) -> ConfigError:
        where = self.origin(path)
        place = f"{_shown(self.file)}: " if self.file and where is None else ""
        key = f"{'.'.join(path)}: " if path else ""
        return ConfigError(f"{place}{key}{what}", where=where, fix=fix)


def _shown(file: Path) -> str:
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative


def _lines(text: str, prefix: Path_) -> dict[Path_, int]:
    """The line of each table and key, as far as a look at each line alone can tell; tomllib itself does not say."""
    found: dict[Path_, int] = {}
    above: dict[Path_, int] = {}
    table: Path_ = ()
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is not None:
            inside = None if line.count(inside) % 2 else inside
            continue
        header = re.match(r"\s*(\[[^\[\]]+\])\s*(?:#.*)?$", line)
        assignment = re.match(r"""\s*((?:"[^"]*"|'[^']*'|[\w\-. \t])+?)\s*=""", line)
        if header:
            table = _key_path(header[1])
            found.setdefault(table, number)
            for depth in range(1, len(table)):
                above.setdefault(table[:depth], number)
        elif assignment:
            path = (*table, *_key_path(f"{assignment[1]} = 0"))
            for depth in range(len(table) + 1, len(path) + 1):
                found.setdefault(path[:depth], number)
        inside = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), None)
    size = len(prefix)
    return {path[size:]: number for path, number in {**above, **found}.items() if path[:size] == prefix}


def _key_path(statement: str) -> Path_:
    try:
        tree: Any = tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(tree, dict) and tree:
        key, tree = next(iter(tree.items()))
        path.append(key)
    return tuple(path)


# Checking and building


def _shape(document: _Document) -> tuple[Tree, dict[str, Tree]]:
    """The base and the profiles, with every table known to be a table and free-form tables flattened."""
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


def _sections(document: _Document, at: Path_, tree: Tree) -> Tree:
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
        _known(document, path, spark, ("master", "conf"))
        if "master" in spark:
            _text(document, (*path, "master"), spark["master"])
        if "conf" in spark:
            spark["conf"] = _flat(document, (*path, "conf"), spark["conf"])
        shaped["spark"] = spark
    return shaped


def _flat(document: _Document, path: Path_, value: object, prefix: str = "") -> Tree:
    # `spark.sql.x = 1` is three nested tables to TOML, and one key to Spark.
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


def _check_rows(document: _Document, tree: Tree, *, required: bool) -> None:
    """Checks every catalog and storage against its row; without `required` also where `${NAME}` is not known yet."""
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
                meant = not_a_type(kind) if section == "catalogs" else near_miss(kind, known)
                raise document.error((*path, "type"), f"type {kind!r} is unknown. {meant}")
            row: CatalogRow | StorageRow = known[kind]
            _known(document, path, settings, (*common, *(key.name for key in row.keys)))
            given = {k: v for k, v in settings.items() if k not in common}
            wrong = problem(row.keys, given, required) or (row.fault(given) if required else None)
            if wrong:
                raise document.error((*path, wrong[0]) if wrong[0] else path, wrong[1])


def _build(document: _Document, tree: Tree, profile: str | None) -> Config:
    root = document.file.parent if document.file else Path.cwd()
    storages = {}
    for name, settings in tree.get("storages", {}).items():
        given = {key: value for key, value in settings.items() if key != "type"}
        options = complete(STORAGES[settings["type"]].keys, given, name, root, lambda: root)
        origin = document.origin(("storages", name))
        storages[name] = Storage(settings["type"], options, origin)
    catalogs = {name: _catalog(document, name, settings, storages, root) for name, settings in tree["catalogs"].items()}
    spark = tree.get("spark", {})
    return Config(
        root=root,
        file=document.file,
        default_catalog=tree.get("default_catalog", DEFAULT_CATALOG),
        catalogs=catalogs,
        storages=storages,
        master=spark.get("master", DEFAULT_MASTER),
        spark_conf=spark.get("conf", {}),
        profile=profile,
    )


def _catalog(document: _Document, name: str, settings: Tree, storages: Mapping[str, Storage], root: Path) -> Catalog:
    path = ("catalogs", name)
    row = CATALOGS[settings["type"]]
    given = {key: value for key, value in settings.items() if key not in ("type", "storage", "properties")}
    wanted = settings.get("storage")
    if wanted is not None and wanted not in storages:
        raise document.error(
            (*path, "storage"),
            f"storage {wanted!r} is not declared. {near_miss(wanted, storages)}",
            fix=f"declare it as [storages.{wanted}].",
        )
    options = complete(row.keys, given, name, root, lambda: root)
    properties = tuple(settings.get("properties", {}).items())
    origin = document.origin(path)
    try:
        return Catalog(name, settings["type"], options, storages.get(wanted or ""), properties, origin)
    except DeclarationError as error:
        raise document.error(path, error.what, error.fix) from error


def _known(document: _Document, path: Path_, tree: Tree, known: Iterable[str]) -> None:
    names = tuple(known)
    for key in tree:
        if key not in names:
            raise document.error((*path, key), f"unknown key {key!r}. {near_miss(key, names)}")


def _table(document: _Document, path: Path_, value: object) -> Tree:
    if not isinstance(value, dict):
        raise document.error(path, f"must be a table, not {_kind(value)}.", fix=f"write [{'.'.join(path)}].")
    return value


def _text(document: _Document, path: Path_, value: object) -> str:
    if not isinstance(value, str):
        raise document.error(path, f"must be text, not {_kind(value)}.")
    if not value.strip():
        raise document.error(path, "must not be empty.")
    return value


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table", str: "text"}
    return names.get(type(value), f"a {type(value).__name__}")
