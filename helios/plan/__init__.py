"""Compiles declared pipelines to plans, without a JVM. A `Plan` can be printed, compared and tested."""

from helios.plan.ahead import components_before_compiling
from helios.plan.compile import Compiled, compile_each, compile_pipelines, infer_schema, without_duplicates
from helios.plan.context import Context
from helios.plan.nodes import Plan, ReadPath, ReadPlan, Trigger, WritePlan, set_renderer
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
    "components_before_compiling",
    "infer_schema",
    "without_duplicates",
]

set_renderer(render)  # `nodes` cannot import `text`, which imports `nodes`
