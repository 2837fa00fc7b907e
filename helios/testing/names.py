"""Finds and replaces the sources of pipelines, by the names that tests use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from helios.errors import InputError, near_miss
from helios.model.flow import Flow, Pipeline, Source, Stream, flows
from helios.model.step import Step

T = TypeVar("T")
_EXTENSION = r"\.(csv|json|parquet|orc|avro|txt|tsv|jsonl|ndjson)"


def sources_of(pipeline: Pipeline) -> list[Source]:
    """The sources of a pipeline, including those of its joins and unions."""
    return [flow.source for flow in flows(pipeline.stream)]


@dataclass
class _SourceReplacer:
    """Replaces the sources of a flow, in the order of `sources_of`."""

    replacements: list[Source]

    def flow(self, flow: Flow) -> Flow:
        first = self.replacements.pop(0)
        if not isinstance(flow, Stream):
            return first
        return replace(flow, start=first, tail=tuple(map(self._step, flow.tail)))

    def _step(self, step: Step) -> Step:
        other = getattr(step, "other", None)
        return replace(step, other=self.flow(other)) if isinstance(other, Flow) else step  # type: ignore[call-arg]


def with_sources(pipeline: Pipeline, sources: Iterable[Source]) -> Pipeline:
    """A pipeline with its sources replaced by others, in the order of `sources_of`."""
    swapped = _SourceReplacer(list(sources)).flow(pipeline.stream)
    assert isinstance(swapped, Stream)
    return replace(pipeline, stream=swapped)


def short_name(text: str) -> str:
    """A short name for a path, a table or a topic: its last part without wildcards and file extensions.

    Examples:
        >>> [short_name(text) for text in ("/in/orders/*.csv", "data/orders.csv", "shop.public.orders", "in")]
        ['orders', 'orders', 'orders', 'in']
    """
    parts = [part for part in re.split(r"/+", text.rstrip("/")) if part and not re.search(r"[*?\[\]{}]", part)]
    last = parts[-1] if parts else text
    if "/" in text:
        return re.sub(rf"{_EXTENSION}(\.\w+)?$", "", last)
    without_extension = re.sub(f"{_EXTENSION}$", "", last)
    return without_extension.rsplit(".", maxsplit=1)[-1].strip("`")


def value_named(name: str, known: Mapping[str, T], kind: str) -> T:
    """Returns the value with a name: the full name, the last parts of the full name, or the short name.

    Args:
        name: The name in the test.
        known: The values by full name.
        kind: The kind of the values, such as "source"; for error messages.

    Raises:
        InputError: No value, or several values, have the name; the message lists the known names.

    Examples:
        >>> value_named("orders", {"local.shop.orders": 1, "local.shop.users": 2}, "source")
        1
    """
    if name in known:
        return known[name]
    matching_names = [full for full in known if full.endswith(f".{name}") or short_name(full) == name]
    if len(matching_names) == 1:
        return known[matching_names[0]]
    if matching_names:
        raise InputError(f"{name!r} is the name of several {kind}s.", fix=f"write one of {', '.join(matching_names)}.")
    short = {short_name(full) for full in known}
    hint = near_miss(name, short if len(short) == len(known) else known)
    raise InputError(f"{name!r} is not a {kind} of the pipeline. {hint}", fix=f"{kind}s: {', '.join(known) or 'none'}.")
