"""The command `rename`: renames a table, and the records that contain its name."""

from __future__ import annotations

from dataclasses import asdict

import click

from helios.cli import options, output
from helios.cli.session import spark_session
from helios.errors import DeclarationError, InputError


@click.command()
@click.argument("old")
@click.argument("new")
@options.common
@options.json_option
def rename(old: str, new: str, *, profile: str | None, as_json: bool) -> None:
    """Rename the table OLD to NEW, and the records of its pipelines.

    A pipeline without .named() is known by the table's name: its records, its default checkpoint and its rejected rows
    are renamed too. Named pipelines and readers of the table find it by its UUID. If one change fails, the others are
    undone. Change the scripts by hand before the next run.

    \b
    Example:
      helios rename shop.orders shop.orders_v2
    """
    from helios.config import resolve
    from helios.model.values import Identifier, caller

    config = options.load_configuration(profile)
    before, after = (resolve(Identifier.parse(name), None, {}, config, caller()) for name in (old, new))
    catalog = before.catalog
    if after.catalog != catalog:
        raise InputError(
            f"{before.text} cannot be renamed to {after.text}: a table stays in its catalog.",
            fix=f"choose a name in {catalog.name}, or copy the table with a pipeline.",
        )
    if not catalog.exists(before.name_in_catalog) and not catalog.exists(after.name_in_catalog):
        catalog.load(before.name_in_catalog)  # raises an error that names the nearest table
    names = [name for namespace in catalog.namespaces() for name in catalog.tables(namespace)]
    # A table with a name that Helios refuses is read and written by no pipeline.
    identifiers = [Identifier.parse(f"{catalog.name}.{name}") for name in names if _is_table_name(name)]
    others = [resolve(identifier, None, {}, config, caller()) for identifier in identifiers]
    with spark_session(config, before) as spark:
        from helios.spark.run.rename_table import rename as run_rename

        result = run_rename(
            spark, before, after, [other for other in others if other.text not in (before.text, after.text)]
        )
    if as_json:
        output.print_json(asdict(result))
        return
    click.echo(f"{result.table} is {result.to} now.")
    for location in result.checkpoints:
        click.echo(f"the pipeline's checkpoint is now {location}.")
    for name in result.quarantines:
        click.echo(f"the rejected rows in {name} have the pipeline's new name.")
    click.echo(
        f"Write {after.name_in_catalog} in the scripts that read and write the table; they continue where they stopped."
    )


def _is_table_name(name: str) -> bool:
    from helios.model.values import Identifier

    try:
        Identifier.parse(f"catalog.{name}")
    except DeclarationError:
        return False
    return True
