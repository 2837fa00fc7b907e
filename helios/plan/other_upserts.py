"""Checks upserts of several pipelines into one table, without a JVM.

An upsert remembers deleted keys, or the newest `order_by` value of each key. Both are stored outside of the table.
Without them, another pipeline could bring back a deleted row, or replace a newer row with an older row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from helios.catalog.conf import keys_folder
from helios.errors import InputError
from helios.model.columns import LOG_ORDER
from helios.model.modes import Mode
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import writers_of_same_branch

if TYPE_CHECKING:
    from helios.table.ledger import Record

KEYS, ORDER_BY, REMEMBERS, VERSIONS, TOMBSTONES = "keys", "newest", "remembers", "versions", "tombstones"
"""The names, in a ledger record, of the terms that decide which row of a key wins an upsert."""
NEWEST_ORDERS = "the newest order of each key"
"""The value of the term `remembers` if the table does not store `order_by` values.

If the table stores them, only deleted keys are remembered.
"""


class Upserts(NamedTuple):
    """The upserts of a pipeline into a table.

    Attributes:
        terms: The terms that decide which row of a key wins, as `upsert_terms` returns them; None without upserts.
        branch: The branch into which the pipeline writes; None for main.
        beside: The other writers of the table that the user has accepted with `--beside`.
        formerly: The former names of the pipeline.
        keys_are_readable: Whether the remembered keys are stored where other pipelines can read them.
    """

    terms: Mapping[str, Any] | None
    branch: str | None
    beside: Sequence[str] = ()
    formerly: Sequence[str] = ()
    keys_are_readable: bool = False


def upserts_of(record: Record) -> Upserts:
    """The upserts of a pipeline, from the pipeline's record."""
    return Upserts(record.upserts, record.branch, record.beside, record.formerly, record.keys is not None)


def new_keys_are_readable(plan: Plan) -> bool:
    """True if other pipelines could read the keys that a new checkpoint of the pipeline remembers."""
    return keys_folder(plan.write.table.catalog, plan.checkpoint, "") is not None


def upserts_alongside(
    plan: Plan, plans: Iterable[Plan | None], known: Mapping[str, Upserts], beside: Collection[str]
) -> dict[str, Upserts]:
    """The upserts of other pipelines into the table: of pipelines with a record, and of pipelines in the same run.

    Args:
        plans: The pipelines of the run.
        known: The upserts of the pipelines that have a record in the table.
        beside: The pipelines that `--beside` names. Every pipeline of the run accepts them.
    """
    upserts_of_run = {}
    for other in writers_of_same_branch(plan, plans):
        former = known.get(other.was or "")
        accepted = (*beside, *(former.beside if former is not None else ()))
        names = (other.was,) if other.was else ()
        keys_are_readable = former.keys_are_readable if former is not None else new_keys_are_readable(other)
        upserts_of_run[other.pipeline] = Upserts(
            upsert_terms(other), other.write.sink.branch_name, accepted, names, keys_are_readable
        )
    return {**upserts_of_run, **known}


def upsert_terms(plan: Plan) -> Mapping[str, Any] | None:
    """The terms that decide which row of a key wins, as a record stores them; None without an upsert."""
    ordered_by_log = any(read.source.carries_order for read in plan.reads)
    return terms_of(plan.write.mode, ordered_by_log=ordered_by_log)


def terms_of(mode: Mode, *, ordered_by_log: bool = False) -> Mapping[str, Any] | None:
    """The terms of a mode, as `upsert_terms` returns them for a plan.

    Args:
        ordered_by_log: Whether the log of a database orders the rows. The table does not store this order.

    Examples:
        >>> from helios.model.modes import Upsert
        >>> terms_of(Upsert(keys=("Id",), order_by="n", delete_when="gone", tombstones=60.0))
        {'keys': ['id'], 'newest': 'n', 'remembers': 'deleted keys', 'tombstones': 60.0}
    """
    upsert = mode.upsert
    if upsert is None:
        return None
    is_column = re.fullmatch(r"`[^`]+`|\w+", upsert.order_by or "") is not None
    order_stored = upsert.stores_order and is_column and not ordered_by_log
    remembers = None
    if ordered_by_log or (upsert.order_by is not None and (upsert.delete_when is not None or not order_stored)):
        remembers = "deleted keys" if order_stored or upsert.history else NEWEST_ORDERS
    terms: dict[str, Any] = {KEYS: sorted(key.lower() for key in upsert.keys)}
    terms |= {ORDER_BY: upsert.order_by, REMEMBERS: remembers}
    if upsert.history:
        terms[VERSIONS] = True
    if upsert.delete_when is not None:
        terms[TOMBSTONES] = upsert.tombstones
    return terms


def can_share_remembered_keys(mine: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> bool:
    """True if each of two pipelines can use the keys that the other remembers.

    Both pipelines need the same keys, `order_by` and `history`. If one pipeline remembers the newest `order_by` value
    of each key, the other pipeline must remember it as well.

    Args:
        mine: The terms of the first pipeline, as `terms_of` returns them.
        theirs: The terms of the second pipeline; None if the second pipeline does not upsert.

    Examples:
        >>> mine = {"keys": ["id"], "newest": "n", "remembers": "deleted keys"}
        >>> can_share_remembered_keys(mine, {**mine, "remembers": None})
        True
        >>> can_share_remembered_keys(mine, {**mine, "newest": "m"})
        False
    """
    if theirs is None or mine[ORDER_BY] in (None, LOG_ORDER):  # positions in two logs cannot be compared
        return False
    both_or_neither = (mine.get(REMEMBERS) == NEWEST_ORDERS) == (theirs.get(REMEMBERS) == NEWEST_ORDERS)
    return both_or_neither and all(mine.get(name) == theirs.get(name) for name in (KEYS, ORDER_BY, VERSIONS))


def refuse_other_upserts(
    plan: Plan, own: Upserts | None, others: Mapping[str, Upserts], beside: Collection[str]
) -> None:
    """Refuses an upsert if another pipeline upserts into the same branch, and the two cannot share remembered keys.

    Args:
        own: The upserts that the pipeline's record describes; None before the pipeline's first start.
        beside: The pipelines that the user accepts with `--beside`.

    Raises:
        InputError: The user has not accepted the other pipeline.
    """
    mine = upsert_terms(plan)
    if mine is None:
        return
    keys_are_readable = own.keys_are_readable if own is not None else new_keys_are_readable(plan)
    accepted = {*beside, *(own.beside if own is not None else ())}
    own_names = {plan.pipeline, plan.was, *(own.formerly if own is not None else ())}
    refused = {
        name: upserts.terms
        for name, upserts in others.items()
        if upserts.terms is not None
        and upserts.branch == plan.write.sink.branch_name
        and (mine[REMEMBERS] or upserts.terms.get(REMEMBERS))
        and not (keys_are_readable and upserts.keys_are_readable and can_share_remembered_keys(mine, upserts.terms))
        and not accepted & {name, *upserts.formerly}
        and not own_names & set(upserts.beside)  # `--beside` accepted this pipeline for the other one
    }
    if refused:
        raise _refused(plan, own, refused, mine, keys_are_readable=keys_are_readable)


def _refused(
    plan: Plan,
    own: Upserts | None,
    others: Mapping[str, Mapping[str, Any]],
    mine: Mapping[str, Any],
    *,
    keys_are_readable: bool,
) -> InputError:
    """The error that `refuse_other_upserts` raises.

    Args:
        others: The terms of the other pipelines' upserts.
        keys_are_readable: Whether other pipelines can read the keys that the pipeline remembers.
    """
    other = min(others)
    keeper, writer, terms = plan.pipeline, other, mine
    if others[other].get(REMEMBERS) is not None:
        keeper, writer, terms = other, plan.pipeline, others[other]
    kept = terms[REMEMBERS]
    if kept == NEWEST_ORDERS:
        order = "log position" if terms.get(ORDER_BY) in (None, LOG_ORDER) else "order_by value"
        kept = f"the newest {order} of each key"
    accepted_by = " ".join(f"--beside {name}" for name in sorted(others))
    how_to_fill = "filled with --full-refresh" if own is None else "under a new name, into a new table"
    comparable = can_share_remembered_keys(mine, others[other])
    difference_note = "" if comparable else ", but with other keys, order_by or options"
    unknown_note = f", which {writer} does not know" if comparable else ""
    fixes = [
        f"write both as one pipeline, source >> union(other) >> sink, {how_to_fill}",
        f"if the two pipelines never write the same key, run once with `helios run {accepted_by}`",
    ]
    if not comparable:
        same = "give both pipelines the same keys and the same order_by column, history= and store_order="
        fixes.insert(0, f"{same}; then both share what they remember")
    elif new_keys_are_readable(plan):
        not_sharing = other if keys_are_readable else plan.pipeline
        new_checkpoint = f"run {not_sharing} once with `helios run --new-checkpoint`"
        fixes.insert(0, f"{new_checkpoint}; then {not_sharing} shares what it remembers")
    return InputError(
        f"{other} also upserts into {plan.write.table.text}{difference_note}. {keeper} remembers {kept}{unknown_note}: "
        f"a late row that {writer} writes would bring back a deleted key, or replace a newer row; nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"{'; or '.join(fixes)}.",
    )


def sharing_notes(plan: Plan, own: Upserts | None, others: Mapping[str, Upserts]) -> list[str]:
    """The plan's notes about the other pipelines that share remembered keys with the pipeline.

    Args:
        own: The upserts that the pipeline's record describes; None before the pipeline's first start.
    """
    mine = upsert_terms(plan)
    if mine is None or (own is not None and not own.keys_are_readable):
        return []
    return [
        f"{name} also upserts, by the same keys and order_by: each pipeline knows the keys that the other has deleted"
        for name, other in sorted(others.items())
        if other.keys_are_readable
        and other.branch == plan.write.sink.branch_name
        and can_share_remembered_keys(mine, other.terms)
    ]
