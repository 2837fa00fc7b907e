"""The configuration that holds for a script: catalogs, storages, Spark and profiles, and how table names resolve."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helios.catalog.catalogs import CATALOGS
from helios.catalog.home import CONFIG_FILE, find_config
from helios.catalog.keys import complete
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES
from helios.config.document import Document
from helios.config.shape import check_rows, shape
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
        root: The folder of the file; the working directory if there is none.
        file: helios.toml or pyproject.toml, if there is one.
        default_catalog: The catalog of names of two parts.
        catalogs: The declared catalogs; `local` always is.
        storages: The declared storages.
        master: Spark's master.
        spark_conf: Spark's conf.
        profile: The profile that was chosen.
        native: Whether the columnar engine runs what it can: "auto", "off", or "require" where it must.
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
        """The declared storage of a name.

        Raises:
            NotFound: There is none.
        """
        if name in self.storages:
            return self.storages[name]
        raise NotFound(
            f"storage {name!r} is not declared. {near_miss(name, self.storages)}",
            where=where,
            fix=f"declare it as [storages.{name}] in {CONFIG_FILE}, or pass a Storage.",
        )


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
    document = Document.read(file)
    chosen = profile or env.get(PROFILE_VARIABLE) or None
    base, profiles = shape(document)
    if chosen is not None and chosen not in profiles:
        raise ConfigError(
            f"profile {chosen!r} is unknown. {near_miss(chosen, profiles)}",
            where=document.origin(("profiles",)) if file else None,
            fix=f"declare [profiles.{chosen}] in {file.name if file else CONFIG_FILE}.",
        )
    for name, overrides in ((None, {}), *profiles.items()):
        check_rows(document.for_profile(name), merge(base, overrides), required=False)
    document = document.for_profile(chosen)
    tree = expand(merge(base, profiles.get(chosen or "", {})), env, document.error)
    check_rows(document, tree, required=True)
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


def _build(document: Document, tree: Tree, profile: str | None) -> Config:
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
        native=spark.get("native", DEFAULT_NATIVE),
    )


def _catalog(document: Document, name: str, settings: Tree, storages: Mapping[str, Storage], root: Path) -> Catalog:
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
