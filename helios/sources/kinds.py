"""The kinds of sources, by name: those of this package, and those that other packages bring as entry points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name

from helios.errors import DeclarationError
from helios.model.flow import Source
from helios.sources.common.kind import SourceKind
from helios.sources.common.position import SourcePosition

GROUP = "helios.sources"
"""The group of the entry points that other packages have: the name of a kind, and its `SourceKind` as "module:NAME"."""

KINDS = {
    "iceberg": "helios.sources.iceberg.kind:ICEBERG",
    "files": "helios.sources.files.kind:FILES",
    "kafka": "helios.sources.kafka.kind:KAFKA",
    "debezium": "helios.sources.changes.kind:DEBEZIUM",
    "change_log": "helios.sources.changes.kind:CHANGE_LOG",
    "webhook": "helios.sources.webhook.kind:WEBHOOK",
    "memory": "helios.sources.memory.kind:MEMORY",
}
"""The kinds of this package: each is imported on first use."""


def source_kind(source: Source) -> SourceKind:
    """The kind of a declared source. Raises DeclarationError if it is unknown."""
    kind = _kind(source)
    if kind is None:
        raise DeclarationError(
            f"{type(source).__name__} is not a kind of source that Helios knows.",
            where=source.origin,
            fix=f"use one of {', '.join(sorted(KINDS))}, or install a package with this kind as entry point {GROUP!r}.",
        )
    return kind


def is_known(source: Source) -> bool:
    return _kind(source) is not None


def _kind(source: Source) -> SourceKind | None:
    kind = _by_name(source.kind)
    return kind if kind is not None and isinstance(source, kind.declared) else None


def position_of(value: object) -> tuple[SourceKind, SourcePosition] | None:
    """The position in a JSON value, with the kind that wrote it; None if no kind recognizes the value.

    Examples:
        >>> kind, position = position_of({"snapshot_id": 7})
        >>> kind.name, position.snapshot
        ('iceberg', 7)
        >>> position_of(None)
    """
    if value is None:
        return None
    for kind in _all_kinds():
        position = kind.position.of(value) if kind.position is not None else None
        if position is not None:
            return kind, position
    return None


def is_outage_message(message: str) -> bool:
    """True if the client of a source reports the message while its service does not answer."""
    return any(kind.outages is not None and re.search(kind.outages, message) for kind in _all_kinds())


def _all_kinds() -> Iterator[SourceKind]:
    """The kinds of this package, then those of other packages, which are looked up only when they are reached."""
    for name in KINDS:
        yield _built_in(name)
    for name in _entry_points():
        kind = _by_name(name)
        if name not in KINDS and kind is not None:
            yield kind


def _by_name(name: str) -> SourceKind | None:
    if name in KINDS:
        return _built_in(name)
    target = _entry_points().get(name)
    kind = resolve_name(target) if target is not None else None
    return kind if isinstance(kind, SourceKind) else None


@cache
def _built_in(name: str) -> SourceKind:
    kind: SourceKind = resolve_name(KINDS[name])
    return kind


@cache
def _entry_points() -> dict[str, str]:
    """The kinds of other packages, as "module:NAME"; looked up once in a process."""
    return {point.name: point.value for point in entry_points(group=GROUP)}
