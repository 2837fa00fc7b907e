"""What a combination cannot keep, and why: the tests expect it to fail there, and the docs show the cause."""

from __future__ import annotations

GAPS: dict[tuple[str, str, str], str] = {
    ("nessie", "s3", "expire"): (
        "Nessie makes tables with `gc.enabled=false`, because their files may belong to other branches; snapshots are "
        "expired by its own collector"
    ),
    ("memory", "local", "append"): "the catalog goes with its process: nothing is left to go on with after a kill",
}
"""The cause by catalog, storage and promise."""
