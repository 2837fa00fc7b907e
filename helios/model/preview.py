"""The first rows of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helios.model import html

if TYPE_CHECKING:
    import pyarrow as pa


class Preview:
    """The first rows of a stream, which a notebook and `print` show as a table.

    pandas, Polars, DuckDB and PyArrow take it as a table: `pl.from_arrow(preview)`.

    Attributes:
        arrow: The rows as a `pyarrow.Table`.

    Examples:
        >>> import pyarrow as pa
        >>> Preview(pa.table({"id": [1, 20], "name": ["ann", None]}))
        id  name
         1  ann
        20  null
    """

    def __init__(self, arrow: pa.Table) -> None:
        self.arrow = arrow

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.arrow.column_names)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.arrow.num_rows)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.arrow[column]

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return list(self.arrow.to_pylist())

    def to_pandas(self) -> Any:
        """The rows as a DataFrame of pandas."""
        return self.arrow.to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows = [["null" if value is None else str(value) for value in row.values()] for row in self.to_pylist()]
        lines = [self.column_names, *rows]
        numbers = [
            str(field.type).startswith(("int", "uint", "float", "double", "decimal")) for field in self.arrow.schema
        ]
        widths = [max((len(line[index]) for line in lines), default=0) for index in range(len(self.column_names))]
        texts = [
            "  ".join(t.rjust(w) if number else t.ljust(w) for t, w, number in zip(line, widths, numbers, strict=True))
            for line in lines
        ]
        return "\n".join(text.rstrip() for text in texts)

    def _repr_html_(self) -> str:
        rows = [[None if v is None else html.short(str(v)) for v in row.values()] for row in self.to_pylist()]
        return html.table(self.column_names, rows)
