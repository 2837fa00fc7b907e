"""A source of numbers, as a package of its own brings it to Helios."""

from helios_counter.declare import CounterSource

__all__ = ["CounterSource"]
