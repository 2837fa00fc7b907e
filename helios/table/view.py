"""The tables, warehouses and checkpoints from which the status of pipelines is read, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helios.table.readers import Warehouse
from helios.table.snapshots import Table


@dataclass(frozen=True, kw_only=True)
class View:
    """The tables, warehouses and checkpoints from which the status of pipelines is read.

    Attributes:
        load: Loads a table by its full name; returns None if it cannot.
        warehouses: Warehouses that may have checkpoints.
        checkpoints: The declared checkpoint of each pipeline of a script, by pipeline.
        file_sizes: The target file size of each pipeline that declares one.
        branches: The branch that each pipeline of a script writes, by pipeline.
    """

    load: Callable[[str], Table | None]
    warehouses: Sequence[Warehouse] = ()
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    file_sizes: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, str] = field(default_factory=dict)
