"""Finds the step of a stream that drops late rows, so that these rows can go to the quarantine."""

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
    """The steps that decide whether a row of a pipeline is late.

    Attributes:
        watermark: The watermark with `on_late="quarantine"`.
        before: The steps before `step`.
        step: The step that drops late rows.
    """

    watermark: Watermark
    before: tuple[Step, ...]
    step: Aggregate | Dedupe


def quarantining_watermarks(flow: Flow) -> list[Watermark]:
    """The watermarks that send late rows to the quarantine."""
    return [
        step
        for inner in flows(flow)
        for step in inner.steps
        if isinstance(step, Watermark) and step.on_late == "quarantine"
    ]


def late_rule(flow: Flow) -> LateRule | None:
    """The rule by which late rows are quarantined; None if none are, or if `late_problems` finds a problem."""
    watermarks = quarantining_watermarks(flow)
    if not watermarks or not is_streaming(flow) or next(_obstacles(flow), None) is not None:
        return None
    steps = enumerate(flow.steps)
    index, step = next((index, step) for index, step in steps if isinstance(step, (Aggregate, Dedupe)))
    return LateRule(watermarks[0], flow.steps[:index], step)


def late_problems(flow: Flow) -> list[HeliosError]:
    """The problems of a watermark with `on_late="quarantine"` whose late rows cannot be found."""
    watermarks = quarantining_watermarks(flow)
    return [
        DeclarationError(
            f"{watermarks[0].text()}: {why}, so that it is not known which rows are late.",
            where=watermarks[0].origin,
            fix="leave on_late= out: late rows are counted; or split the pipeline: write the rows to a table first.",
        )
        for why in (_obstacles(flow) if watermarks else ())
    ]


def _obstacles(flow: Flow) -> Iterator[str]:
    """Yields why the late rows of a stream cannot be found; nothing if they can."""
    other_flows = list(flows(flow))[1:]
    watermarks = [step for inner in flows(flow) for step in inner.steps if isinstance(step, Watermark)]
    dropping_index = next((index for index, step in enumerate(flow.steps) if _drops_late_rows(step)), None)
    stateful = [step for step in stateful_steps(flow) if not isinstance(step, Watermark)]
    if any(is_streaming(inner) for inner in other_flows):
        yield "the stream follows several sources"
    elif len(watermarks) != 1:
        yield "the stream has several watermarks"
    elif watermarks[0] not in flow.steps:
        yield "the watermark is on a stream that is joined or united"
    elif dropping_index is None:
        yield "no window and no dedupe after it keeps state by event time"
    elif len(stateful) != 1:
        yield "several steps keep state"
    elif watermarks[0] not in flow.steps[:dropping_index]:
        yield f"the watermark comes after {flow.steps[dropping_index].text()}"
    else:
        dependent = next((step for step in flow.steps[:dropping_index] if not step.traits.row_by_row), None)
        if dependent is not None:
            yield f"{dependent.text()} comes before {flow.steps[dropping_index].text()}"


def _drops_late_rows(step: Step) -> bool:
    return isinstance(step, Dedupe) or (isinstance(step, Aggregate) and step.window is not None)
