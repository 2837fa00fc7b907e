"""A reader of mirrored tables that looks for broken foreign keys: orders without their customer."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable


@dataclass
class Reader:
    """Looks at the tables `customers` and `orders` of mirrors until it is told to stop.

    Attributes:
        database: The catalog, a file of SQLite.
        mirrors: The namespaces of the mirrors.
        looks: By mirror, how many states of its two tables were seen.
        broken: In how many of them an order had no customer.
        orphans: How many such orders there were.
    """

    database: Path
    mirrors: Iterable[str]
    looks: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    orphans: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)
    _seen: dict[str, tuple[str, str]] = field(default_factory=dict)

    def run(self) -> None:
        while not self.stop.is_set():
            self.look()

    def _tables(self) -> dict[tuple[str, str], str]:
        """The metadata of all tables, in one statement; none where there is no catalog yet."""
        if not self.database.exists():
            return {}
        with closing(sqlite3.connect(self.database, timeout=60)) as catalog:
            query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
            try:
                return {(namespace, table): location for namespace, table, location in catalog.execute(query)}
            except sqlite3.OperationalError:  # there is no table of tables yet
                return {}

    def look(self) -> None:
        """Takes the metadata of all tables in one statement, and reads those of each mirror that has changed."""
        found, before = self._tables(), dict(self._seen)
        for name in self.mirrors:
            pair = found.get((name, "customers")), found.get((name, "orders"))
            if pair[0] is None or pair[1] is None or self._seen.get(name) == pair:
                continue
            self._seen[name] = pair[0], pair[1]
            customers, orders = (rows(location) for location in pair if location is not None)
            known = {row["id"] for row in customers}
            orphans = sum(1 for row in orders if row["customer"] not in known)
            self.looks[name] += 1
            self.broken[name] += orphans > 0
            self.orphans[name] += orphans
        if self._seen == before:
            time.sleep(0.02)


def rows(location: str) -> list[dict[str, Any]]:
    """The rows of a table, by its metadata."""
    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return found
