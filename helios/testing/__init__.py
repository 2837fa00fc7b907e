"""Tests of pipelines: rows go in by source, the target is compared, and what breaks exactly once is found.

    def test_totals(lake):
        test = lake.test(totals)
        test.batch(orders=[{"id": 1, "customer": "ann", "amount": "12.50"}])
        test.expect([{"customer": "ann", "total": 12.5}])
        test.invariant()

The fixture `lake` comes with the package; without pytest it is `with Lake() as lake:`. See docs/testing.md.
"""

from helios.testing.case import PipelineTest
from helios.testing.diff import Different
from helios.testing.lake import Lake
from helios.testing.plans import assert_plan, schema
from helios.testing.records import Record

__all__ = ["Different", "Lake", "PipelineTest", "Record", "assert_plan", "schema"]
