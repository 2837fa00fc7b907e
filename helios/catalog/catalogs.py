"""The supported types of catalogs."""

from __future__ import annotations

from helios.catalog.embedded import LOCAL, MEMORY
from helios.catalog.glue import GLUE
from helios.catalog.hive import HIVE
from helios.catalog.nessie import NESSIE
from helios.catalog.rest import REST
from helios.catalog.rows import CatalogRow

CATALOGS: dict[str, CatalogRow] = {
    "local": LOCAL,
    "memory": MEMORY,
    "rest": REST,
    "glue": GLUE,
    "hive": HIVE,
    "nessie": NESSIE,
}
"""The row with all that Helios knows about each type of catalog."""
