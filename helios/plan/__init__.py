"""A pure compiler from declared pipelines to a `Plan` that can be printed, compared and tested without a JVM."""

from helios.plan.ahead import components_ahead
from helios.plan.compile import Compiled, compile_each, compile_pipelines, distinct, infer_schema
from helios.plan.context import Context
from helios.plan.nodes import Plan, ReadPath, ReadPlan, Trigger, WritePlan, rendered_by
from helios.plan.text import render

__all__ = [
    "Compiled",
    "Context",
    "Plan",
    "ReadPath",
    "ReadPlan",
    "Trigger",
    "WritePlan",
    "compile_each",
    "compile_pipelines",
    "components_ahead",
    "distinct",
    "infer_schema",
]

rendered_by(render)
