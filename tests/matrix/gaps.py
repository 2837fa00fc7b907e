"""What a combination cannot keep, and why: the tests expect it to fail there, and the docs show the cause."""

from __future__ import annotations

GAPS: dict[tuple[str, str, str], str] = {
    ("memory", "local", "append"): "the catalog goes with its process: nothing is left to go on with after a kill",
}
"""The cause by catalog, storage and promise."""
