"""Refuses expressions that depend on how Spark spreads rows over tasks, such as `spark_partition_id()`."""

from __future__ import annotations

from collections.abc import Sequence

from helios.model.flow import Pipeline, flows
from helios.plan.typing.determinism import spread_function
from helios.steps.with_columns import WithColumns
from helios.testing.diff import Different


def refuse_task_dependence(pipelines: Sequence[Pipeline], ignore: Sequence[str]) -> None:
    """Raises `Different` for an expression that depends on how Spark spreads rows over tasks.

    A comparison of targets would not show the difference, since the few rows of a test are all in one task. The
    columns in `ignore` may differ from run to run.
    """
    ignored = {name.lower() for name in ignore}
    for step in (step for pipeline in pipelines for flow in flows(pipeline.stream) for step in flow.steps):
        texts: Sequence[str] = step.sql_texts
        if isinstance(step, WithColumns):
            texts = [text for name, text in step.columns if name.lower() not in ignored]
        spread_call = spread_function(texts)
        if spread_call is not None:
            raise Different(
                f"{step.text()} ({step.origin}): {spread_call} depends on how rows are spread over tasks, and a test "
                "has one task. Remove it, or ignore its column: invariant(ignore=[...])."
            )
