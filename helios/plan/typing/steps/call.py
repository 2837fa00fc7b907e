"""The columns after a callable, which are known only at run."""

from __future__ import annotations

from helios.model.call import Call
from helios.plan.typing.infer import Result
from helios.plan.typing.schema import Schema


def columns(step: Call, schema: Schema | None, other: Schema | None) -> Result:
    return None, []
