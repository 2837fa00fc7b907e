"""The tables that the pipelines of a script write, and the columns of tables that do not exist yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helios.catalog.names import TableName
from helios.errors import HeliosError
from helios.model.flow import Flow, Pipeline
from helios.model.sink import IcebergSink
from helios.plan.ahead import quarantine_of, target_of
from helios.plan.context import Context
from helios.plan.target import columns_of_new
from helios.plan.typing.schema import Schema


class ScriptTables:
    """The tables that pipelines write. Of routed and mirrored tables, only the prefix of the names is known.

    Args:
        schema_of: Returns the columns of a flow; None if they are known only at run.
    """

    def __init__(
        self, pipelines: Sequence[Pipeline], context: Context, schema_of: Callable[[Flow], Schema | None]
    ) -> None:
        self._schema_of = schema_of
        self._writers: dict[str, list[tuple[TableName, IcebergSink, Flow]]] = {}
        self._without_columns: set[str] = set()  # tables whose columns are known only at run
        self._prefixes: tuple[str, ...] = ()
        self._columns: dict[str, Schema | None] = {}
        for pipeline in pipelines:
            sink = pipeline.sink.iceberg
            if sink is None:
                continue
            try:
                target, quarantine = target_of(sink, context), quarantine_of(sink, context)
            except HeliosError:
                continue  # the compilation of that pipeline reports the error
            self._writers.setdefault(target.text, []).append((target, sink, pipeline.stream))
            if quarantine is not None:
                self._without_columns.add(quarantine.text)
            if sink.many_tables:
                self._without_columns.add(target.text)
                self._prefixes += (target.prefix,)

    def __contains__(self, table: object) -> bool:
        text = table.text if isinstance(table, TableName) else ""
        return text in self._writers or text in self._without_columns or text.startswith(self._prefixes)

    def columns(self, table: TableName) -> Schema | None:
        """The columns of a table that a pipeline creates.

        None if they are known only at run, or if several pipelines write the table.
        """
        writers = self._writers.get(table.text, ())
        if table.text in self._without_columns or len(writers) != 1:
            return None
        if table.text not in self._columns:
            self._columns[table.text] = None  # ends the recursion if pipelines read each other's targets
            [(name, sink, stream)] = writers
            schema = self._schema_of(stream)
            self._columns[table.text] = columns_of_new(sink, name, schema) if schema is not None else None
        return self._columns[table.text]
