"""Whether `--new-checkpoint` can go on at the position that a target has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helios.errors import InputError
from helios.plan.nodes import Plan


def refuse_new_checkpoint(
    plan: Plan, followed: list[str], entries: Sequence[Mapping[str, Any]], *, holds_rows: bool
) -> None:
    """Refuses a recorded position that a new checkpoint cannot go on at.

    Args:
        plan: The pipeline.
        followed: The names of its followed sources.
        entries: The entries of the recorded position; none if nothing is recorded.
        holds_rows: Whether the target holds rows.

    Raises:
        InputError: The pipeline cannot resume there.
    """
    if followed and not entries and holds_rows:
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: {plan.write.table.text} holds rows, and "
            "remembers no position of it.",
            where=plan.origin,
            fix="restore the checkpoint, refill the target with `helios run --full-refresh`, or run under a new "
            "name into a new table.",
        )
    if any(isinstance(entry.get("to"), dict) and "logOffset" in entry["to"] for entry in entries):
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: its last batch was read by Spark's own file "
            "stream, as earlier versions did, whose log is only in the old checkpoint.",
            where=plan.origin,
            fix="run it once with that checkpoint, or refill the target with `helios run --full-refresh` while the "
            "files are there.",
        )
    # A position of a stateful batch, or of other sources, cannot be resumed.
    without_place = any("place" not in entry for entry in entries)
    if entries and followed and (without_place or [entry["source"] for entry in entries] != followed):
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: its last batch read "
            f"{', '.join(entry['source'] for entry in entries)} on another path or from other sources.",
            where=plan.origin,
            fix="put the sources back, or run under a new name into a new target.",
        )
