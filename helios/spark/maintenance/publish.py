"""Publishes a branch through Iceberg's Java API, for tables whose metadata PyIceberg cannot write."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.errors import RunError
from helios.spark.jvm.errors import CONFLICTS, java_class
from helios.spark.maintenance.compact import failure, load_existing
from helios.table.publish import Publication
from helios.table.refs import MAIN


def publish(spark: SparkSession, name: TableName, planned: Publication) -> None:
    """In one commit, moves main to the head of a branch, and writes the pipelines' records for main.

    Raises:
        RunError: The table was changed meanwhile, or the commit failed.
    """
    changed_error = RunError(
        f"table {name.text} was changed by another writer meanwhile; nothing was done.",
        fix="check the table, and repeat the command.",
    )
    table = load_existing(spark, name)
    # The transaction begins before the checks. The checks see each earlier commit; a later one fails the transaction.
    transaction = table.newTransaction()
    branch, main = table.refs().get(planned.branch), table.refs().get(MAIN)
    heads = [int(ref.snapshotId()) if ref is not None else None for ref in (branch, main)]
    properties = table.properties()
    if heads != [planned.snapshot, planned.former] or any(
        properties.get(key) != text for key, text in planned.known.items()
    ):
        raise changed_error
    try:
        # After another writer's commit, Iceberg retries a change of properties on the new metadata, but refuses a
        # change of a ref. So main is set even if it does not move. fastForwardBranch would fail if a snapshot between
        # main and the branch has expired.
        refs = transaction.manageSnapshots()
        if planned.former is None:
            refs.createBranch(MAIN, planned.snapshot).commit()
        else:
            refs.replaceBranch(MAIN, planned.snapshot if planned.moves_main else planned.former).commit()
        if planned.records:
            update = transaction.updateProperties()
            for key, text in planned.records.items():
                update = update.set(key, text)
            update.commit()
        transaction.commitTransaction()
    except Py4JJavaError as error:
        if java_class(error) in CONFLICTS:
            raise changed_error from error
        raise failure(name, f"publishing {planned.branch}", error) from error
