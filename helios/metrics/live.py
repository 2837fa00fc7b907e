"""The figures of a run as read-only attributes, which follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from helios.metrics.metrics import Metrics

T = TypeVar("T")


class Live:
    """A sum of the current period as a read-only attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, metrics: None, owner: type) -> Self: ...
    @overload
    def __get__(self, metrics: Metrics, owner: type) -> int: ...
    def __get__(self, metrics: Metrics | None, owner: type) -> Self | int:
        if metrics is None:
            return self
        number: int = getattr(metrics._period, self._name)
        return number

    def __set__(self, metrics: Metrics, value: Any) -> None:
        raise AttributeError(f"{self._name} is counted by the run.")


class Worked(Generic[T]):
    """A figure that is worked out when it is asked for."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, metrics: None, owner: type) -> Self: ...
    @overload
    def __get__(self, metrics: Metrics, owner: type) -> T: ...
    def __get__(self, metrics: Metrics | None, owner: type) -> Self | T:
        if metrics is None:
            return self
        found: T = getattr(metrics.snapshot(), self._name)
        return found

    def __set__(self, metrics: Metrics, value: Any) -> None:
        raise AttributeError(f"{self._name} is worked out by the run.")
