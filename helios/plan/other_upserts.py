"""Checks upserts of several pipelines into one table, without a JVM.

An upsert remembers deleted keys, or the newest `order_by` value of each key. Both are stored outside of the table.
A pipeline that does not know them could bring back a deleted row, or replace a newer row with an older one.
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

KEYS, NEWEST, REMEMBERS, VERSIONS, TOMBSTONES = "keys", "newest", "remembers", "versions", "tombstones"
"""The names of an upsert's terms in a ledger record."""
NEWEST_ORDERS = "the newest order of each key"
"""The value of `REMEMBERS` if the table does not store the order. Otherwise only deleted keys are remembered."""


class Upserts(NamedTuple):
    """The upserts of a pipeline into a table.

    Attributes:
        terms: The terms that decide which row of a key wins, as `upsert_terms` returns them; None without upserts.
        branch: The branch that is written.
        beside: The other writers of the table that the user has accepted with `--beside`.
        formerly: The former names of the pipeline.
        shares: Whether the remembered keys are stored where other pipelines can read them.
    """

    terms: Mapping[str, Any] | None
    branch: str | None
    beside: Sequence[str] = ()
    formerly: Sequence[str] = ()
    shares: bool = False


def upserts_of(record: Record) -> Upserts:
    """The upserts that a record describes."""
    return Upserts(record.upserts, record.branch, record.beside, record.formerly, record.keys is not None)


def begins_sharing(plan: Plan) -> bool:
    """True if a new checkpoint of the pipeline stores the remembered keys where other pipelines can read them."""
    return keys_folder(plan.write.table.catalog, plan.checkpoint, "") is not None


def upserts_alongside(
    plan: Plan, plans: Iterable[Plan | None], known: Mapping[str, Upserts], beside: Collection[str]
) -> dict[str, Upserts]:
    """The upserts of other pipelines into the table: of those with a record, and of those in the same run.

    Args:
        plans: The pipelines of the run.
        known: The upserts of pipelines with a record.
        beside: The pipelines of `--beside`, which every pipeline of the run accepts.
    """
    upserts_of_run = {}
    for other in writers_of_same_branch(plan, plans):
        former = known.get(other.was or "")
        accepted = (*beside, *(former.beside if former is not None else ()))
        names = (other.was,) if other.was else ()
        shares = former.shares if former is not None else begins_sharing(other)
        upserts_of_run[other.pipeline] = Upserts(
            upsert_terms(other), other.write.sink.branch_name, accepted, names, shares
        )
    return {**upserts_of_run, **known}


def upsert_terms(plan: Plan) -> Mapping[str, Any] | None:
    """The terms that decide which row of a key wins, as in a record; None without an upsert."""
    ordered_by_log = any(read.source.carries_order for read in plan.reads)
    return terms_of(plan.write.mode, ordered_by_log=ordered_by_log)


def terms_of(mode: Mode, *, ordered_by_log: bool = False) -> Mapping[str, Any] | None:
    """The terms of a mode, as `upsert_terms` returns them for a plan.

    Args:
        ordered_by_log: Whether the rows are ordered by the log of a database; the table does not store this order.

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
    terms |= {NEWEST: upsert.order_by, REMEMBERS: remembers}
    if upsert.history:
        terms[VERSIONS] = True
    if upsert.delete_when is not None:
        terms[TOMBSTONES] = upsert.tombstones
    return terms


def shares_keys(mine: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> bool:
    """True if each of two pipelines can use the keys that the other remembers.

    This requires the same keys, order and `history`, and that both or neither remember the order of each key.

    Args:
        mine: The terms of one pipeline, as `terms_of` returns them.
        theirs: The terms of the other; None if it does not upsert.

    Examples:
        >>> mine = {"keys": ["id"], "newest": "n", "remembers": "deleted keys"}
        >>> shares_keys(mine, {**mine, "remembers": None}), shares_keys(mine, {**mine, "newest": "m"})
        (True, False)
    """
    if theirs is None or mine[NEWEST] in (None, LOG_ORDER):  # positions in two logs cannot be compared
        return False
    both_or_neither = (mine.get(REMEMBERS) == NEWEST_ORDERS) == (theirs.get(REMEMBERS) == NEWEST_ORDERS)
    return both_or_neither and all(mine.get(name) == theirs.get(name) for name in (KEYS, NEWEST, VERSIONS))


def refuse_other_upserts(
    plan: Plan, own: Upserts | None, others: Mapping[str, Upserts], beside: Collection[str]
) -> None:
    """Refuses an upsert beside that of another pipeline if one of them cannot use the keys that the other remembers.

    Args:
        own: The upserts that the pipeline's record describes; None before its first start.
        beside: Pipelines that the user accepts with `--beside`.

    Raises:
        InputError: There is such a pipeline that the user has not accepted.
    """
    mine = upsert_terms(plan)
    if mine is None:
        return
    shares = own.shares if own is not None else begins_sharing(plan)
    accepted = {*beside, *(own.beside if own is not None else ())}
    own_names = {plan.pipeline, plan.was, *(own.formerly if own is not None else ())}
    refused = {
        name: upserts.terms
        for name, upserts in others.items()
        if upserts.terms is not None
        and upserts.branch == plan.write.sink.branch_name
        and (mine[REMEMBERS] or upserts.terms.get(REMEMBERS))
        and not (shares and upserts.shares and shares_keys(mine, upserts.terms))
        and not accepted & {name, *upserts.formerly}
        and not own_names & set(upserts.beside)  # the user has accepted this pipeline for the other
    }
    if refused:
        raise _refused(plan, own, refused, mine, shares=shares)


def _refused(
    plan: Plan, own: Upserts | None, others: Mapping[str, Mapping[str, Any]], mine: Mapping[str, Any], *, shares: bool
) -> InputError:
    """The error that `refuse_other_upserts` raises.

    Args:
        others: The terms of the other pipelines' upserts.
        shares: Whether other pipelines can read the keys that the pipeline remembers.
    """
    other = min(others)
    theirs = others[other].get(REMEMBERS)
    keeper, writer, kept = plan.pipeline, other, mine[REMEMBERS]
    if theirs is not None:
        keeper, writer, kept = other, plan.pipeline, theirs
    accepted_by = " ".join(f"--beside {name}" for name in sorted(others))
    how_to_fill = "filled with --full-refresh" if own is None else "under a new name, into a new table"
    comparable = shares_keys(mine, others[other])
    difference_note = "" if comparable else " by other keys, another order or other options,"
    unknown_note = f", which {writer} does not know" if comparable else ""
    fixes = [
        f"write both as one pipeline, source >> union(other) >> sink, {how_to_fill}",
        f"where the two never write the same key, run once with `helios run {accepted_by}`",
    ]
    if not comparable:
        same = "give both the same keys and the same order_by column, history= and store_order="
        fixes.insert(0, f"{same}, and they share what they remember")
    elif begins_sharing(plan):
        not_sharing = other if shares else plan.pipeline
        fixes.insert(0, f"run {not_sharing} once with `helios run --new-checkpoint`, and it shares what it remembers")
    return InputError(
        f"{other} upserts into {plan.write.table.text}, too,{difference_note} and {keeper} remembers "
        f"{kept}{unknown_note}: a late row that {writer} writes would bring back a deleted key, or replace a newer "
        "row; nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"{'; or '.join(fixes)}.",
    )


def sharing_notes(plan: Plan, own: Upserts | None, others: Mapping[str, Upserts]) -> list[str]:
    """The notes of a plan on other pipelines with which it shares the remembered keys.

    Args:
        own: The upserts that the pipeline's record describes; None before its first start.
    """
    mine = upsert_terms(plan)
    if mine is None or (own is not None and not own.shares):
        return []
    return [
        f"{name} upserts by the same keys and order: each knows the keys that the other has deleted"
        for name, other in sorted(others.items())
        if other.shares and other.branch == plan.write.sink.branch_name and shares_keys(mine, other.terms)
    ]
