"""`expect`: declares conditions that every row must meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import check_mapping
from helios.model.expressions import SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller
from helios.steps.pairs import Pairs, column_pairs, expressions, shown

OnFail: TypeAlias = Literal["fail", "drop", "quarantine"]
ON_FAIL: tuple[OnFail, ...] = get_args(OnFail)


@dataclass(frozen=True, kw_only=True)
class Expect(Step):
    """Conditions that every row must meet, and what happens to rows that do not."""

    traits: ClassVar[Traits] = Traits(row_by_row=True, judges=True, passes_hidden=True, same_columns=True)

    conditions: Pairs
    on_fail: OnFail

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return expressions(self.conditions)

    @property
    def keeps_rows(self) -> bool:
        return self.on_fail == "fail"

    def text(self) -> str:
        return f"expect({shown(self.conditions)}, on_fail={self.on_fail})"


def expect(conditions: Mapping[str, SqlText], *, on_fail: OnFail = "fail") -> Transform:
    """Conditions that every row must meet: `expect({"positive": "amount > 0"}, on_fail="drop")`.

    Args:
        conditions: SQL conditions by name; a row fails if one of them is false or null.
        on_fail: What happens to such a row: "fail" stops the run before anything of the batch is written, "drop"
            leaves the row out and counts it, "quarantine" writes it to the sink's `.quarantine(table)`.

    Raises:
        DeclarationError: There is no condition, or `on_fail` is unknown.
    """
    if on_fail not in ON_FAIL:
        raise DeclarationError(
            f"expect(on_fail={on_fail!r}) is unknown. {near_miss(str(on_fail), ON_FAIL)}", where=caller()
        )
    check_mapping(conditions, "expect", '{"positive": "amount > 0"}')
    if not conditions:
        raise DeclarationError(
            "expect() needs at least one condition.", where=caller(), fix='write expect({"positive": "amount > 0"}).'
        )
    return as_step(Expect(conditions=column_pairs(conditions, "expect"), on_fail=on_fail))
