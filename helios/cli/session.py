"""Opens a Spark session for a command, with the catalogs of the tables that the command names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from helios.cli import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.catalog.names import TableName
    from helios.config import Config


@contextmanager
def spark_session(config: Config, *tables: TableName) -> Iterator[SparkSession]:
    """Opens a session with the catalogs of the tables, and stops it at the end of the `with` block."""
    from helios.catalog.conf import components
    from helios.environment import jars
    from helios.spark.maintenance import maintain

    version, _ = jars.installed_spark()
    say = partial(click.echo, err=True)
    catalogs = {table.catalog.name: table.catalog for table in tables}.values()
    needed = tuple(dict.fromkeys(jar for catalog in catalogs for jar in components(catalog)))
    if jars.missing_jars_of(needed, spark_version=version):
        jars.ensure(needed, spark_version=version, progress=say)
    say(f"starting Spark {version} on {config.master} ...")
    spark = maintain.open_session(config, *catalogs, debug=options.settings().debug)
    try:
        yield spark
    finally:
        spark.stop()
