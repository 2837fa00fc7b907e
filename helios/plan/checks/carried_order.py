"""Checks of pipelines whose rows carry their own order and deletes, such as the changes of a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Pipeline, Source, flows
from helios.model.sink import IcebergSink
from helios.model.step import Step, step_kinds
from helios.plan.checks.mirrors import mirror_problems
from helios.plan.views import view_of
from helios.steps.rename import Rename
from helios.steps.sample import Sample


def change_problems(pipeline: Pipeline, sink: IcebergSink) -> list[HeliosError]:
    """The problems of a pipeline whose rows carry their order and deletes, and of an upsert without keys.

    The upsert or the source declares the keys, or each record has its own.
    """
    source, mode = pipeline.stream.source, sink.mode
    if sink.mirrors:
        return list(mirror_problems(pipeline, sink))
    _, *other_flows = flows(pipeline.stream)
    changes = next((flow.source for flow in other_flows if flow.source.carries_order), None)
    if changes is not None:
        return [
            DeclarationError(
                f"{changes.label()}: changes cannot be the other side of a join or a union: deletes would be lost.",
                where=changes.origin,
                fix="upsert them into a table of their own, and join that.",
            )
        ]
    if not source.carries_order:
        missing = [_no_keys(sink)] if mode.upsert and not mode.keys else []
        return [*missing, *_sampled_changes(pipeline)] if mode.upsert else missing
    problems = _sink_problems(source, pipeline.stream.steps, sink) + _step_problems(pipeline)
    if mode.upsert and not mode.keys and source.carried_keys == ():
        return [_no_keys(sink), *problems]
    return problems


def renamed(keys: Sequence[str], steps: Iterable[Step]) -> tuple[str, ...]:
    """The names that key columns have after the steps."""
    names = tuple(keys)
    for step in steps:
        if isinstance(step, Rename):
            names = tuple(map(step.name_after, names))
    return names


def former_names(keys: Sequence[str], steps: Sequence[Step]) -> tuple[str, ...]:
    """The names that key columns have before the steps.

    Examples:
        >>> from helios import rename
        >>> former_names(["order"], rename({"id": "number"}).steps + rename({"number": "order"}).steps)
        ('id',)
    """
    names = tuple(keys)
    for step in reversed(steps):
        for old, new in reversed(step.names) if isinstance(step, Rename) else ():
            names = tuple(old if name.lower() == new.lower() else name for name in names)
    return names


def _sampled_changes(pipeline: Pipeline) -> list[HeliosError]:
    """A problem for each sample of a table's changes: it would keep a row and drop its later update or delete."""
    if view_of(pipeline) is not None:
        return []
    samples = [
        step
        for flow in flows(pipeline.stream)
        for index, step in enumerate(flow.steps)
        if isinstance(step, Sample)
        and flow.source.reads_changes
        and not any(later.traits.combines or later.traits.opaque for later in flow.steps[index:])
    ]
    return [
        DeclarationError(
            f"{step.text()} of changes may keep a row and drop its later update or delete.",
            where=step.origin,
            fix='sample by the key: where("pmod(hash(id), 100) < 10").',
        )
        for step in samples
    ]


def _no_keys(sink: IcebergSink) -> HeliosError:
    return DeclarationError(
        "upsert needs key columns: only the changes of Cdc.debezium() bring their own.",
        where=sink.origin,
        fix='write upsert("id").',
    )


def _sink_problems(source: Source, steps: Sequence[Step], sink: IcebergSink) -> list[HeliosError]:
    mode = sink.mode
    if mode.upsert is None:
        return [
            DeclarationError(
                f"{source.label()} are changes, with deletes and updates, which {mode.call}() cannot apply.",
                where=sink.origin,
                fix="write .upsert(), or read the records themselves: Kafka.source(...) >> ....",
            )
        ]
    if mode.upsert.extra_arguments:
        argument = mode.upsert.extra_arguments[0]
        return [
            DeclarationError(
                f"upsert({argument}=): the changes of {source.label()} carry their own order and deletes.",
                where=sink.origin,
                fix=f"leave {argument}= out.",
            )
        ]
    if sink.routing is not None:
        return [
            DeclarationError(
                "route(): a delete carries only the key of its row, so its table is unknown.",
                where=sink.origin,
                fix="write one table, partitioned by the expression.",
            )
        ]
    keys = renamed(source.carried_keys or (), steps)
    if keys and mode.keys and {k.lower() for k in keys} != {k.lower() for k in mode.keys}:
        return [
            DeclarationError(
                f"the source's key is {', '.join(keys)}, and the upsert is by {', '.join(mode.keys)}.",
                where=sink.origin,
                fix=f"write .upsert({', '.join(repr(k) for k in keys)}).",
            )
        ]
    return []


def _step_problems(pipeline: Pipeline) -> list[HeliosError]:
    step = next((step for step in pipeline.stream.steps if not step.traits.passes_hidden), None)
    if step is None:
        return []
    return [
        DeclarationError(
            f"{step.text()}: this step does not keep the order and the deletes of changes.",
            where=step.origin,
            fix="upsert the changes into a table, and follow that table with .incremental().changes(); before the "
            f"upsert, use {', '.join(kind.call() for kind in step_kinds(lambda traits: traits.passes_hidden))}.",
        )
    ]
