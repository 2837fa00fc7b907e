"""Loads the configuration of a script (catalogs, storages, Spark, profiles), and resolves table names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helios.catalog.catalogs import CATALOGS
from helios.catalog.home import CONFIG_FILE, find_config
from helios.catalog.keys import completed_settings
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES
from helios.config.document import Document
from helios.config.shape import base_and_profiles, check_catalogs_and_storages
from helios.config.tree import Tree, expand, merge
from helios.errors import ConfigError, DeclarationError, NotFound, Origin, near_miss
from helios.model.values import Identifier

DEFAULT_CATALOG = "local"
DEFAULT_MASTER = "local[*]"
DEFAULT_NATIVE = "auto"
PROFILE_VARIABLE = "HELIOS_PROFILE"


@dataclass(frozen=True)
class Config:
    """The configuration of a script.

    Args:
        root: The folder of the configuration file, or the working directory if there is no file.
        file: helios.toml or pyproject.toml; None if there is neither.
        default_catalog: The catalog of table names that do not name a catalog.
        catalogs: The declared catalogs, and `local` even if it is not declared.
        native: When the columnar engine runs: "auto" (whenever it can), "off", or "require" (a batch that it cannot run
            is an error).
    """

    root: Path
    file: Path | None
    default_catalog: str
    catalogs: dict[str, Catalog]
    storages: dict[str, Storage]
    master: str
    spark_conf: dict[str, str] = field(repr=False)
    profile: str | None
    native: str = DEFAULT_NATIVE

    def storage(self, name: str, where: Origin) -> Storage:
        """The storage that is declared under a name. Raises NotFound if there is none."""
        if name in self.storages:
            return self.storages[name]
        raise NotFound(
            f"storage {name!r} is not declared. {near_miss(name, self.storages)}",
            where=where,
            fix=f"declare it as [storages.{name}] in {CONFIG_FILE}, or pass a Storage.",
        )


def load(start: Path, profile: str | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """Reads the configuration of a script.

    Args:
        start: The script, or its folder.
        profile: The profile; by default the value of HELIOS_PROFILE.
        env: The environment variables for `${NAME}`.

    Raises:
        ConfigError: The file, the profile or a variable is wrong.
    """
    folder = Path(start).absolute()
    file = find_config(folder.parent if folder.is_file() else folder)
    document = Document.read(file)
    profile = profile or env.get(PROFILE_VARIABLE) or None
    base, profiles = base_and_profiles(document)
    if profile is not None and profile not in profiles:
        raise ConfigError(
            f"profile {profile!r} is unknown. {near_miss(profile, profiles)}",
            where=document.origin(("profiles",)) if file else None,
            fix=f"declare [profiles.{profile}] in {file.name if file else CONFIG_FILE}.",
        )
    # All profiles are checked, but only the variables of the selected profile must be set.
    check_catalogs_and_storages(document, base, final=False)
    for name, overrides in profiles.items():
        check_catalogs_and_storages(document.for_profile(name), merge(base, overrides), final=False)
    document = document.for_profile(profile)
    tree = expand(merge(base, profiles.get(profile or "", {})), env, document.error)
    check_catalogs_and_storages(document, tree, final=True)
    return _build(document, tree, profile)


def resolve(
    identifier: Identifier,
    catalog: Catalog | str | None,
    script_catalogs: Mapping[str, Catalog],
    config: Config,
    where: Origin,
) -> TableName:
    """The table that a name refers to.

    Args:
        catalog: The argument `catalog=`; if it is given, the name contains no catalog.
        script_catalogs: The catalogs that the script declares, by name; they override the configuration's.

    Raises:
        NotFound: The catalog is not declared.
    """
    declared = {**config.catalogs, **script_catalogs}
    parts = identifier.parts
    if isinstance(catalog, Catalog):
        owner = catalog
    elif catalog is not None:
        owner = _declared_catalog(catalog, declared, where, f"catalog={catalog!r}: ")
    elif len(parts) > 2:
        namespace_fix = f' If it is a namespace, pass catalog="{config.default_catalog}".'
        owner = _declared_catalog(parts[0], declared, where, f"{identifier}: ", namespace_fix)
        parts = parts[1:]
    else:
        owner = _declared_catalog(config.default_catalog, declared, where, f"{identifier}: the default ")
    return TableName(owner, parts[:-1], parts[-1])


def _declared_catalog(
    name: str, declared: Mapping[str, Catalog], where: Origin, prefix: str, more_fix: str = ""
) -> Catalog:
    if name in declared:
        return declared[name]
    raise NotFound(
        f"{prefix}catalog {name!r} is not declared. {near_miss(name, declared)}",
        where=where,
        fix=f"declare it in the script, or as [catalogs.{name}] in {CONFIG_FILE}.{more_fix}",
    )


def _build(document: Document, tree: Tree, profile: str | None) -> Config:
    root = document.file.parent if document.file else Path.cwd()
    storages = {}
    for name, settings in tree.get("storages", {}).items():
        own_settings = {key: value for key, value in settings.items() if key != "type"}
        options = completed_settings(STORAGES[settings["type"]].keys, own_settings, name, root, lambda: root)
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
        native=spark.get("native", DEFAULT_NATIVE),
    )


def _catalog(document: Document, name: str, settings: Tree, storages: Mapping[str, Storage], root: Path) -> Catalog:
    path = ("catalogs", name)
    row = CATALOGS[settings["type"]]
    own_settings = {key: value for key, value in settings.items() if key not in ("type", "storage", "properties")}
    storage = settings.get("storage")
    if storage is not None and storage not in storages:
        raise document.error(
            (*path, "storage"),
            f"storage {storage!r} is not declared. {near_miss(storage, storages)}",
            fix=f"declare it as [storages.{storage}].",
        )
    options = completed_settings(row.keys, own_settings, name, root, lambda: root)
    properties = tuple(settings.get("properties", {}).items())
    origin = document.origin(path)
    try:
        return Catalog(name, settings["type"], options, storages.get(storage or ""), properties, origin)
    except DeclarationError as error:
        raise document.error(path, error.what, error.fix) from error
