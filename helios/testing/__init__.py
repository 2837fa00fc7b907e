"""Tests of pipelines: feed rows to sources, compare targets, and check that no crash breaks exactly-once.

    def test_totals(lake):
        test = lake.test(totals)
        test.batch(orders=[{"id": 1, "customer": "ann", "amount": "12.50"}])
        test.expect([{"customer": "ann", "total": 12.5}])
        test.invariant()

The package has the pytest fixture `lake`; without pytest, write `with Lake() as lake:`. See docs/testing.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helios.testing.case import PipelineTest
    from helios.testing.diff import Different
    from helios.testing.lake import Lake
    from helios.testing.plans import assert_plan, schema
    from helios.testing.records import Record

__all__ = ["Different", "Lake", "PipelineTest", "Record", "assert_plan", "schema"]

_MODULES = {
    "Different": "diff",
    "Lake": "lake",
    "PipelineTest": "case",
    "Record": "records",
    "assert_plan": "plans",
    "schema": "plans",
}


def __getattr__(name: str) -> object:
    # Every run of pytest imports this package with the plugin. So its modules are only loaded at their first use.
    if name in _MODULES:
        return globals().setdefault(name, getattr(import_module(f"helios.testing.{_MODULES[name]}"), name))
    raise AttributeError(f"module 'helios.testing' has no attribute {name!r}")
