"""The rows of chosen files, and their columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from helios.errors import NotFound
from helios.files.entry import File
from helios.files.names import is_glob
from helios.model.files import FilesSource
from helios.spark.sources.context import SourceContext
from helios.spark.sources.listing import text_seq


def schema_of(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The columns of files: the declared ones, or those that Spark finds in them."""
    return read_files(context, source, files).schema


def read_files(context: SourceContext, source: FilesSource, files: Sequence[File]) -> DataFrame:
    """The rows of files.

    Args:
        context: What the sources of the run share.
        source: The folder.
        files: The files; there may be none if columns are declared.

    Raises:
        NotFound: There are no files, and no declared columns.
    """
    declared = source.declared_schema
    if not files:
        if declared is None:
            raise NotFound(
                f"{source.label()}: there are no files, so that its columns are unknown.",
                where=source.origin,
                fix="check the path; for a folder that is still empty, pass schema=.",
            )
        columns = StructType.fromDDL(declared)
        assert isinstance(columns, StructType)
        return context.spark.createDataFrame([], columns)
    reader = context.spark.read.format(source.format).options(**source.reader_options())
    # Names with brackets are no patterns here, and a file that is gone is never passed over.
    reader = reader.options(__globPaths__="false", ignoreMissingFiles="false")
    if not is_glob(source.path) and files[0].path.rpartition("/")[2] != source.path.rpartition("/")[2]:
        reader = reader.option("basePath", source.path)
    if declared is not None:
        reader = reader.schema(declared)
    elif source.format == "csv":
        reader = reader.option("inferSchema", "true")
    try:
        found = reader._jreader.load(text_seq(file.path for file in files))
    except AnalysisException as error:
        raise NotFound(
            f"{source.label()}: {str(error).splitlines()[0]}",
            where=source.origin,
            fix="check the path; for a folder that is still empty, pass schema=.",
        ) from error
    return DataFrame(found, context.spark)
