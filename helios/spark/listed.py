"""Java collections as Python lists."""

from __future__ import annotations

from typing import Any


def listed(collection: Any) -> list[Any]:
    """The elements of a Java collection.

    Python's own loop over one ends with a Java exception, which pyspark asks a dozen times what it is.
    """
    return list(collection.toArray())
