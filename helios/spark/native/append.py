"""The append of a batch that the columnar engine has written."""

from __future__ import annotations

from pyspark.sql.types import StructType

from helios.native.program import NotNative
from helios.spark.iceberg.transaction import Transaction
from helios.spark.native.batch import NativeBatch, data_files
from helios.spark.native.target import target_of


def appended(pending: Transaction, native: NativeBatch, made: StructType, stored: StructType) -> bool:
    """Appends a batch as the columnar engine writes it; False, with nothing written, where Spark must do it.

    Args:
        pending: The transaction.
        native: The batch.
        made: The columns that Spark's analyzer gives the steps.
        stored: Those of the rows as they are stored.
    """
    try:
        if not native.matches(made):
            raise NotNative("Spark gives the steps other columns")
        if {(f.name, f.dataType) for f in made.fields} != {(f.name, f.dataType) for f in stored.fields}:
            raise NotNative("the columns of the batch are not those of the table")
        target = target_of(pending.spark, pending.table, pending.properties, stored)
        written = native.write(pending.spark, target)
    except NotNative as reason:
        native.told(str(reason))
        return False
    try:
        pending.append_files(data_files(pending.table, written.files))
    except BaseException:
        written.delete()
        raise
    return True
