"""Late rows that go to the quarantine: the step that drops them, and the steps allowed before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Flow, flows
from helios.model.step import Step
from helios.plan.typing.aggregates import is_streaming, stateful_steps
from helios.steps.aggregate import Aggregate
from helios.steps.dedupe import Dedupe
from helios.steps.watermark import Watermark


@dataclass(frozen=True)
class LateRule:
    """The condition under which a row of a pipeline is late.

    Attributes:
        watermark: The step that asks for the quarantine.
        before: The steps before the one that takes rows no more.
        step: That step.
    """

    watermark: Watermark
    before: tuple[Step, ...]
    step: Aggregate | Dedupe


def quarantining_watermarks(flow: Flow) -> list[Watermark]:
    """The watermarks of a stream whose late rows go to the quarantine."""
    return [
        step
        for inner in flows(flow)
        for step in inner.steps
        if isinstance(step, Watermark) and step.on_late == "quarantine"
    ]


def late_rule(flow: Flow) -> LateRule | None:
    """The rule of a stream without problems; None where late rows are dropped, or nothing is followed."""
    asked = quarantining_watermarks(flow)
    if not asked or not is_streaming(flow) or next(_obstacles(flow), None) is not None:
        return None
    at, step = next((at, step) for at, step in enumerate(flow.steps) if isinstance(step, (Aggregate, Dedupe)))
    return LateRule(asked[0], flow.steps[:at], step)


def late_problems(flow: Flow) -> list[HeliosError]:
    """Why the late rows of a stateful stream cannot be quarantined."""
    asked = quarantining_watermarks(flow)
    return [
        DeclarationError(
            f"{asked[0].text()}: {why}, so that it is not known which of its rows are late.",
            where=asked[0].origin,
            fix="leave on_late= out: late rows are counted; or split the pipeline: write the rows to a table first.",
        )
        for why in (_obstacles(flow) if asked else ())
    ]


def _obstacles(flow: Flow) -> Iterator[str]:
    others = list(flows(flow))[1:]
    marks = [step for inner in flows(flow) for step in inner.steps if isinstance(step, Watermark)]
    at = next((at for at, step in enumerate(flow.steps) if _by_time(step)), None)
    kept = [step for step in stateful_steps(flow) if not isinstance(step, Watermark)]
    if any(is_streaming(inner) for inner in others):
        yield "the stream follows several sources"
    elif len(marks) != 1:
        yield "the stream has several watermarks"
    elif at is None:
        yield "no window and no dedupe behind it keeps state by event time"
    elif len(kept) != 1:
        yield "several steps keep state"
    elif marks[0] not in flow.steps[:at]:
        yield f"it stands behind {flow.steps[at].text()}"
    else:
        wrong = next((step for step in flow.steps[:at] if not step.traits.row_by_row), None)
        if wrong is not None:
            yield f"{wrong.text()} stands before {flow.steps[at].text()}"


def _by_time(step: Step) -> bool:
    """True if a step drops rows by their event time."""
    return isinstance(step, Dedupe) or (isinstance(step, Aggregate) and step.window is not None)
