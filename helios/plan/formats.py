"""The features of Iceberg's format versions, and the readers that do not support them."""

from __future__ import annotations

from collections.abc import Mapping

FEATURES: Mapping[int, str] = {3: "deletion vectors and row lineage"}
"""For a format version, the features that the previous version lacks."""

UNREADABLE_BY: Mapping[int, tuple[str, ...]] = {
    3: (
        "PyIceberg before 0.10",
        "Polars before 1.44",
        "ClickHouse (tested: 26.9)",
        "Daft (tested: 0.7)",
        "Amazon Athena",
        "engines with Iceberg's Java library before 1.8",
    ),
}
"""For a format version, the readers that fail on its tables, or return wrong rows; docs/writing.md has the details."""


def show_format(version: int) -> str:
    """A format version as the plan shows it.

    Examples:
        >>> show_format(2), show_format(3)
        ('format v2', 'format v3 (deletion vectors and row lineage)')
    """
    return f"format v{version} ({FEATURES[version]})" if version in FEATURES else f"format v{version}"
