"""The seam by which a declared value reaches the layers above it without importing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from helios.errors import HeliosError


class Engine(Protocol):
    """What the upper layers do with a pipeline; provided by `helios/__init__.py`."""

    def check(self, pipeline: Any) -> None: ...

    def plan(self, pipeline: Any) -> Any: ...

    def run(self, pipeline: Any, once: bool, spark: Any, again: bool = False) -> Any: ...

    def schema(self, flow: Any) -> Any: ...

    def preview(self, flow: Any, rows: int, spark: Any) -> Any: ...


_loader: Callable[[], Engine] | None = None


def provide(loader: Callable[[], Engine]) -> None:
    """Sets how the engine is loaded at its first use."""
    global _loader
    _loader = loader


def engine() -> Engine:
    if _loader is None:
        raise HeliosError("No engine is provided.", fix="import helios, not only helios.model.")
    return _loader()
