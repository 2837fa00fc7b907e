"""Checks of Kafka sources, without a JVM and without the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from helios.catalog.keys import is_loopback
from helios.errors import DeclarationError, HeliosError
from helios.plan.typing.schema import Schema
from helios.sources.kafka.connection import connection_problems
from helios.sources.kafka.declare import KafkaSource


def topic_problems(source: KafkaSource, schema: Schema | None) -> list[HeliosError]:
    """The problems of a Kafka source; `schema` is None if its columns are not known yet."""
    columns = column_problems(source, schema.names) if schema is not None else []
    connection = connection_problems(source, source.label())
    return [*connection, *_registry_problems(source), *columns, *_offset_problems(source)]


def _registry_problems(source: KafkaSource) -> list[HeliosError]:
    """The problem of a registry that is queried over plain HTTP on another machine."""
    registry = source.values.registry
    if registry is None or registry.allow_http or not registry.url.startswith("http://"):
        return []
    if is_loopback(urlsplit(registry.url).hostname or ""):
        return []
    return [
        DeclarationError(
            f"registry={registry.url!r} goes to another machine unencrypted.",
            where=source.origin,
            fix="use https://, or add allow_http=True if you trust the network.",
        )
    ]


def column_problems(source: KafkaSource, columns: Sequence[str]) -> list[HeliosError]:
    """The problem of two columns whose names differ at most in case; `columns` are the names of all columns."""
    names = [name.lower() for name in columns]
    duplicate = next((name for i, name in enumerate(columns) if name.lower() in names[:i]), None)
    if duplicate is None:
        return []
    metadata = next((field for column, field in source.metadata_pairs if column.lower() == duplicate.lower()), None)
    fix = f'write .metadata(kafka_{metadata}="{metadata}").' if metadata is not None else "name each column once."
    return [DeclarationError(f"{source.label()}: two columns are called {duplicate!r}.", where=source.origin, fix=fix)]


def _offset_problems(source: KafkaSource) -> list[HeliosError]:
    """The problem of start offsets for a topic that the source does not read."""
    if not isinstance(source.starts_at, tuple):
        return []
    named = [topic for topic, _ in source.starts_at]
    unknown = [topic for topic in named if topic and source.pattern is None and topic not in source.topics]
    if unknown:
        problem = f"{unknown[0]!r} is not a topic of the source"
    elif "" in named and len(source.topics) > 1:
        problem = "the offsets name no topic, and the source has several"
    else:
        return []
    return [
        DeclarationError(
            f"start({source.declared_start}): {problem}.",
            where=source.origin,
            fix='write {"orders": {0: 15}, "payments": {0: 7}}.',
        )
    ]
