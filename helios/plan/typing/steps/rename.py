"""The columns after `rename`: the same, some with other names."""

from __future__ import annotations

from dataclasses import replace

from helios.errors import DeclarationError, HeliosError
from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, absent_column_problem
from helios.plan.typing.schema import Schema
from helios.steps.rename import Rename


def columns(step: Rename, schema: Schema | None, other: Schema | None) -> Result:
    if schema is None:
        return None, []
    problems: list[HeliosError] = []
    # Spark applies the renames in order: a later one sees the new names.
    for old, new in step.names:
        problems += absent_column_problem(step, old, schema)
        taken = schema.get(new)
        if taken is not None and new.lower() != old.lower() and schema.get(old):
            problems.append(
                DeclarationError(
                    f"{label('rename', f'{old} -> {new}')}: there is a column {taken.name!r} already.",
                    where=step.origin,
                    fix=f'leave it out first with drop("{taken.name}"), or choose another name.',
                )
            )
            continue
        schema = Schema(
            tuple(replace(c, name=new, exact=True) if c.name.lower() == old.lower() else c for c in schema.columns)
        )
    return schema, problems
