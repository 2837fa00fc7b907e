"""Finds the line of the script for an error of a run that does not name a line."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from helios.errors import CheckFailed, EnvironmentProblem, HeliosError, Origin
from helios.plan.nodes import Plan, ReadPlan

SOURCES = "helios.sources."
SINKS = ("helios.spark.sinks.", "helios.spark.checkpoint.", "helios.spark.maintenance.")
STEPS = "helios.spark.steps."


def locate(error: HeliosError, plan: Plan) -> None:
    """Adds the line of the source, the sink or the pipeline to an error that has no line."""
    if isinstance(error, CheckFailed):
        for problem in error.problems:
            problem.where = problem.where or origin_of(error, plan)
        error.what = "\n".join(map(str, error.problems))
    elif not isinstance(error, EnvironmentProblem):  # no line of the script is the cause of a problem with the machine
        error.where = error.where or origin_of(error, plan)


def origin_of(error: BaseException, plan: Plan) -> Origin | None:
    """The line of the source or sink whose code raised an error, or of the pipeline for a step; None for other code."""
    for module, frame in _frames(error):
        if module.startswith(SOURCES) or _read_plan(frame) is not None:
            return _source_origin(error, plan)
        if module.startswith(SINKS):
            return plan.declared.sink.origin
        if module.startswith(STEPS):
            return plan.origin
    return None


def _source_origin(error: BaseException, plan: Plan) -> Origin:
    """The line of the source that raised an error, found by its reader, or by the source's name in the message."""
    for _, frame in _frames(error):
        read = _read_plan(frame)
        if read is not None:
            return read.source.origin
    if len(plan.reads) == 1:
        return plan.reads[0].source.origin
    named_in_message = [read for read in plan.reads if read.name in str(error)]
    if not named_in_message:
        return plan.origin
    # The longest name, since a shorter one may occur in the message only as a part of it.
    return max(named_in_message, key=lambda read: len(read.name)).source.origin


def _read_plan(frame: FrameType) -> ReadPlan | None:
    """The read plan of the reader whose method a frame runs; None if the frame runs no method of a reader.

    The reader may belong to another package than Helios.
    """
    read = getattr(frame.f_locals.get("self"), "read_plan", None)
    return read if isinstance(read, ReadPlan) else None


def _frames(error: BaseException) -> Iterator[tuple[str, FrameType]]:
    """The modules and frames of an error's traceback, innermost first."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return ((str(frame.f_globals.get("__name__")), frame) for frame in reversed(frames))
