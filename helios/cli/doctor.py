"""The commands `doctor`, which checks this machine and the catalogs, and `jars`, which prepares this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from helios.catalog.catalogs import CATALOGS
from helios.cli import options, output
from helios.cli.doctor_checks import Check, run_check
from helios.cli.options import ScriptName
from helios.errors import EnvironmentProblem, HeliosError, NotFound, near_miss

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from helios.catalog.spec import Catalog
    from helios.cli.options import Loaded
    from helios.environment.java import Java


@click.command()
@options.optional_script_argument
@click.option("--catalog", "name", metavar="NAME", help="Only this catalog.")
@options.set_option
@options.common
@options.json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    script: ScriptName | None,
    name: str | None,
    values: dict[str, str],
    profile: str | None,
    as_json: bool,
) -> None:
    """Check Java, Spark, the jars, the catalogs and the topics.

    It checks the catalogs of the script, or without a script those of helios.toml: their addresses, the credentials
    that are used (the values are not shown) and the namespaces. It writes a small file to each catalog's storage,
    reads it and deletes it. For a script's Kafka sources it starts Spark, and checks the brokers, the topics with their
    offsets and the schema registry. No check takes more than 10 s.

    \b
    Example:
      helios doctor
      helios doctor pipeline.py --catalog prod
    """
    loaded = options.load(script, profile, values, offline=True) if script is not None else None
    catalogs = _catalogs(loaded, profile, name)
    checked = loaded if name is None else None
    checks = [_check_java(), *_check_spark(lambda: _components(catalogs, checked)), _check_memory(script, profile)]
    for catalog in catalogs:
        checks += _check_catalog(catalog)
    if checked is not None:
        from helios.cli.doctor_sources import check_sources

        checks += check_sources(checked)
    failed = [check for check in checks if check.ok is False]
    if as_json:
        output.print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        output.print_table(("check", "result", "time", "detail"), [_row(check) for check in checks], numbers=("time",))
        for check in failed:
            output.say_error(output.paragraph(HeliosError(f"{check.name}: {check.detail}", fix=check.fix)))
    ctx.exit(1 if failed else 0)


def _row(check: Check) -> tuple[str, ...]:
    result = {True: "ok", False: "FAILED", None: "-"}[check.ok]
    duration = f"{check.milliseconds:.0f} ms" if check.milliseconds is not None else ""
    return check.name, result, duration, check.detail


@click.command()
@options.optional_script_argument
@options.set_option
@options.common
@options.json_option
def jars(script: ScriptName | None, values: dict[str, str], profile: str | None, as_json: bool) -> None:
    """Fetch the jars that a run needs, and prepare a faster start.

    The jars are those that the pipelines of the script need, or without a script the catalogs of helios.toml. For the
    faster start, an archive of Java's classes is stored beside the jars (some 180 MB). To create it, the first call
    runs a small pipeline in a temporary folder.

    \b
    Example:
      helios jars
      helios jars pipeline.py --json
    """
    from helios.environment import class_archive, java
    from helios.environment.jars import ensure, installed_spark

    def say(line: str) -> None:
        click.echo(line, err=True)

    version, _ = installed_spark()
    loaded = options.load(script, profile, values, offline=True) if script is not None else None
    needed = _components(_catalogs(loaded, profile), loaded)
    paths = ensure(needed, spark_version=version, progress=say)
    class_archive.ensure(java.find_java(), version, say)
    if as_json:
        output.print_json({"spark": version, "components": needed, "jars": [str(path) for path in paths]})
    else:
        for path in paths:
            click.echo(path)


def _catalogs(loaded: Loaded | None, profile: str | None, name: str | None = None) -> list[Catalog]:
    """The catalogs of the script, or without a script those of helios.toml. A name selects one declared catalog."""
    config = loaded.context.config if loaded else options.load_configuration(profile)
    used = options.catalogs_of(loaded) if loaded else list(config.catalogs.values())
    if name is None:
        return used
    declared = loaded.context.catalogs if loaded else {}
    known = {**config.catalogs, **declared, **{catalog.name: catalog for catalog in used}}
    if name not in known:
        raise NotFound(
            f"catalog {name!r} is not declared. {near_miss(name, known)}",
            fix="declare it in helios.toml ([catalogs.NAME]), or pass the script that declares it.",
        )
    return [known[name]]


def _components(catalogs: Iterable[Catalog], loaded: Loaded | None) -> list[str]:
    """The jar components that catalogs need, and those of the sources, sinks and checkpoints of a script."""
    from helios.catalog.conf import checkpoint_components, components, warehouse
    from helios.plan.ahead import components_before_compiling

    needed = [(*components(catalog), *checkpoint_components(warehouse(catalog) or "")) for catalog in catalogs]
    needed += [components_before_compiling(loaded.pipelines, loaded.context)] if loaded is not None else []
    return list(dict.fromkeys(chain.from_iterable(needed)))


def _check_java() -> Check:
    from helios.environment.java import find_java

    def java_text(java: Java) -> str:
        notice = f" ({java.notice})" if java.notice else ""
        return f"{java.version} at {java.path}{notice}"

    return run_check("java", lambda: java_text(find_java()))


def _check_spark(components: Callable[[], list[str]]) -> list[Check]:
    from helios.environment.jars import cache_folder, installed_spark, missing_jars_of

    versions: list[str] = []

    def spark() -> str:
        version, folder = installed_spark()
        versions.append(version)
        return f"{version} at {folder.parent}"

    def jars() -> str:
        needed = components()
        missing = missing_jars_of(needed, spark_version=versions[0])
        if missing:
            raise EnvironmentProblem(
                f"missing in {cache_folder(versions[0])}: {', '.join(missing)}.",
                fix="run `helios jars` on a machine with network; `helios run` also fetches them.",
            )
        return f"{', '.join(needed)} in {cache_folder(versions[0])}"

    spark_check = run_check("spark", spark)
    if spark_check.ok:
        return [spark_check, run_check("jars", jars)]
    return [spark_check, Check("jars", None, "not checked: the needed jars depend on Spark's version")]


def _check_memory(script: ScriptName | None, profile: str | None) -> Check:
    from helios.config import load
    from helios.environment.memory import driver_memory_text

    def describe() -> str:
        config = load(Path(script.path), profile) if script is not None else options.load_configuration(profile)
        return f"{driver_memory_text(config.master, config.spark_conf)}, on {config.master}"

    return run_check("memory", describe)


def _check_catalog(catalog: Catalog) -> list[Check]:
    from helios.catalog import probe
    from helios.catalog.connections import addresses

    name = f"catalog {catalog.name}"
    address_checks = _check_addresses(name, addresses(catalog))
    checks = [*address_checks, *_check_credentials(name, lambda: probe.catalog_credentials(catalog))]
    unreachable = [check for check in address_checks if not check.ok]
    has_replicas = isinstance(catalog.option("uri"), tuple)
    # One reachable replica is enough.
    if unreachable and (len(unreachable) == len(address_checks) or not has_replicas):
        listing = Check(name, None, "not checked: its address does not answer")
    else:
        remedy = f"check the settings of [catalogs.{catalog.name}], and that its server is up."
        listing = run_check(name, lambda: _namespaces_text(catalog), fallback_fix=remedy)
    histories = _check_histories(catalog) if listing.ok else []
    return [*checks, listing, *histories, *_check_storage(catalog, server_answers=listing.ok is True)]


def _check_addresses(name: str, addresses: Iterable[str]) -> list[Check]:
    from helios.catalog.probe import reach

    def check_address(address: str) -> Check:
        def connect() -> str:
            reach(address)
            return address

        return run_check(f"{name}: address", connect, address)

    return [check_address(address) for address in addresses]


def _check_credentials(name: str, credentials: Callable[[], str | None]) -> list[Check]:
    """A list with the check of the credentials. It is empty if no credentials are needed."""
    check = run_check(f"{name}: credentials", lambda: credentials() or "")
    return [check] if check.detail else []


def _namespaces_text(catalog: Catalog) -> str:
    names = catalog.namespaces()
    listed = ", ".join([*names[:5], "..."] if len(names) > 5 else names)
    if len(names) > 1:
        return f"{catalog.type}; {len(names)} namespaces: {listed}"
    return f"{catalog.type}; {listed or 'no namespaces yet'}"


def _check_histories(catalog: Catalog) -> list[Check]:
    """A list with a check that advises on the pipelines' tables with many snapshots; empty without advice."""
    from helios.table.growth import growth
    from helios.table.refs import LEDGER

    def describe() -> str:
        names = [name for namespace in catalog.namespaces() for name in catalog.tables(namespace)]
        tables = [catalog.load(name) for name in names]
        written = [table for table in tables if any(key.startswith(LEDGER) for key in table.iceberg.properties)]
        advised = [(table.name, growth(table.iceberg).advice()) for table in written]
        return "; ".join(f"{name} has {advice}" for name, advice in advised if advice is not None)

    check = run_check(f"history of {catalog.name}", describe)
    if check.ok is False:
        return [replace(check, ok=None, detail=f"not checked: {check.detail}")]
    return [replace(check, ok=None)] if check.detail else []


def _check_storage(catalog: Catalog, *, server_answers: bool) -> list[Check]:
    """Checks a storage: writes a small file in the warehouse, reads it and deletes it, through PyIceberg."""
    from helios.catalog import probe
    from helios.catalog.conf import storage_of, warehouse

    name = f"storage of {catalog.name}"
    if CATALOGS[catalog.type].temporary:
        return [Check(name, None, "temporary")]
    if not server_answers and (warehouse(catalog) is None or probe.vends_credentials(catalog)):
        return [Check(name, None, "not checked: only the catalog's server knows where it is")]
    declared = storage_of(catalog)
    checks = _check_addresses(name, probe.storage_addresses(declared) if declared else ())
    checks += _check_credentials(name, lambda: probe.storage_credentials(catalog))
    if any(check.ok is False for check in checks):
        return checks
    folders: list[tuple[str, FileIO]] = []

    def connect() -> str:
        folder = probe.table_folder(catalog)
        folders.extend([folder] if folder else [])
        return ""

    connected = run_check(name, connect)  # a separate check, so that the time of the put does not include connecting
    if not connected.ok:
        return [*checks, connected]
    if not folders:
        return [
            *checks,
            Check(name, None, "the server names no folder for tables: create a table, and run `helios doctor` again"),
        ]
    remedy = f"check the address, the keys and the rights of the storage of [catalogs.{catalog.name}]."
    return [*checks, *_round_trip(name, *folders[0], remedy)]


def _round_trip(name: str, folder: str, io: FileIO, remedy: str) -> Iterable[Check]:
    location = f"{folder.rstrip('/')}/.helios-doctor-{os.urandom(8).hex()}"
    content = os.urandom(64)

    def put() -> str:
        # With overwrite=True, PyIceberg does not first check whether the file exists. If the rights are missing, that
        # check fails with an error that names no reason.
        with io.new_output(location).create(overwrite=True) as stream:
            stream.write(content)
        return folder

    def get() -> str:
        with io.new_input(location).open() as stream:
            if stream.read() != content:
                raise EnvironmentProblem(f"the bytes read from {location} differ from those written.")
        return f"{len(content)} bytes, the same"

    def delete() -> str:
        io.delete(location)
        return "removed"

    put_check = run_check(f"{name}: put", put, folder, remedy)
    yield put_check
    if put_check.ok:
        yield run_check(f"{name}: get", get, folder, remedy)
        yield run_check(f"{name}: delete", delete, folder, remedy)
