"""Upserts of several pipelines into one table, and the keys that they share; without a JVM."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from helios.catalog.conf import keys_folder
from helios.errors import InputError
from helios.model.columns import LOG
from helios.model.modes import Mode
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import alongside

if TYPE_CHECKING:
    from helios.table.ledger import Record

KEYS, NEWEST, REMEMBERS, VERSIONS, TOMBSTONES = "keys", "newest", "remembers", "versions", "tombstones"
ORDERS = "the newest order of each key"


class Upserts(NamedTuple):
    """The upserts of a pipeline into a table.

    Attributes:
        terms: What decides which row of a key wins, as `upsert_terms` gives it; None without upserts.
        branch: The branch that it writes.
        beside: The pipelines beside which it was told to write.
        formerly: What it was called before.
        shares: Whether others can read what it remembers, and it reads what they do.
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
    """True if other pipelines can read the keys that a pipeline remembers, from its next checkpoint on."""
    return keys_folder(plan.write.table.catalog, plan.checkpoint, "") is not None


def upserts_alongside(
    plan: Plan, plans: Iterable[Plan | None], known: Mapping[str, Upserts], beside: Collection[str]
) -> dict[str, Upserts]:
    """The upserts of others into the table, with those of pipelines of the same run that have no record yet.

    Args:
        plan: The pipeline.
        plans: Those of the run.
        known: The upserts of others, as their records tell.
        beside: Those beside which the run may write; that is said to each of its pipelines.
    """
    begun = {}
    for other in alongside(plan, plans):
        was = known.get(other.was or "")
        accepted = (*beside, *(was.beside if was is not None else ()))  # under a former name, too
        names = (other.was,) if other.was else ()
        shares = was.shares if was is not None else begins_sharing(other)
        begun[other.pipeline] = Upserts(upsert_terms(other), other.write.sink.branch_name, accepted, names, shares)
    return {**begun, **known}


def upsert_terms(plan: Plan) -> Mapping[str, Any] | None:
    """The terms that decide which row of a key wins, as in a record; None without an upsert."""
    ordered_by_log = any(read.source.carries_order for read in plan.reads)
    return terms_of(plan.write.mode, ordered_by_log=ordered_by_log)


def terms_of(mode: Mode, *, ordered_by_log: bool = False) -> Mapping[str, Any] | None:
    """As `upsert_terms`, of a mode.

    Args:
        mode: The mode.
        ordered_by_log: Whether rows are changes in the order of their log, which no table stores.

    Examples:
        >>> from helios.model.modes import Upsert
        >>> terms_of(Upsert(keys=("Id",), order_by="n", delete_when="gone", tombstones=60.0))
        {'keys': ['id'], 'newest': 'n', 'remembers': 'deleted keys', 'tombstones': 60.0}
    """
    upsert = mode.upsert
    if upsert is None:
        return None
    plain = re.fullmatch(r"`[^`]+`|\w+", upsert.order_by or "") is not None
    stored = upsert.stores_order and plain and not ordered_by_log
    remembers = None
    if ordered_by_log or (upsert.order_by is not None and (upsert.delete_when is not None or not stored)):
        remembers = "deleted keys" if stored or upsert.history else ORDERS
    terms = {KEYS: sorted(key.lower() for key in upsert.keys), NEWEST: upsert.order_by, REMEMBERS: remembers}
    versions = {VERSIONS: True} if upsert.history else {}
    return {**terms, **versions, **({TOMBSTONES: upsert.tombstones} if upsert.delete_when is not None else {})}


def shares_keys(mine: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> bool:
    """True if two pipelines can compare the keys they remember: same keys, same order, and both or neither store it.

    Args:
        mine: What the upserts of one go by, as `terms_of` gives it.
        theirs: That of the other; None without upserts.

    Examples:
        >>> mine = {"keys": ["id"], "newest": "n", "remembers": "deleted keys"}
        >>> shares_keys(mine, {**mine, "remembers": None}), shares_keys(mine, {**mine, "newest": "m"})
        (True, False)
    """
    if theirs is None or mine[NEWEST] in (None, LOG):  # the order of a log says nothing of another one
        return False
    kinds = {terms.get(REMEMBERS) == ORDERS for terms in (mine, theirs)}
    return len(kinds) == 1 and all(mine.get(name) == theirs.get(name) for name in (KEYS, NEWEST, VERSIONS))


def refuse_other_upserts(
    plan: Plan, own: Upserts | None, others: Mapping[str, Upserts], beside: Collection[str]
) -> None:
    """Rejects upserts into a table beside another pipeline that cannot read the keys that these remember.

    What an upsert remembers is shared by upserts of equal keys and order; it does not say anything to others.

    Args:
        plan: The pipeline.
        own: Its own upserts until now; None before its first start.
        others: The upserts of the others.
        beside: More pipelines beside which it may write.

    Raises:
        InputError: There is such a pipeline, and it is none of these.
    """
    mine = upsert_terms(plan)
    if mine is None:
        return
    shares = own.shares if own is not None else begins_sharing(plan)
    accepted = {*beside, *(own.beside if own is not None else ())}
    called = {plan.pipeline, plan.was, *(own.formerly if own is not None else ())}
    others_terms = {
        name: upserts.terms
        for name, upserts in others.items()
        if upserts.terms is not None
        and upserts.branch == plan.write.sink.branch_name
        and (mine[REMEMBERS] or upserts.terms.get(REMEMBERS))
        and not (shares and upserts.shares and shares_keys(mine, upserts.terms))
        and not accepted & {name, *upserts.formerly}
        and not called & set(upserts.beside)  # it was accepted beside this one
    }
    if others_terms:
        raise _refused(plan, own, others_terms, mine, shares=shares)


def _refused(
    plan: Plan, own: Upserts | None, found: Mapping[str, Mapping[str, Any]], mine: Mapping[str, Any], *, shares: bool
) -> InputError:
    """The error for upserts beside those of other pipelines.

    Args:
        plan: The pipeline.
        own: Its own upserts until now.
        found: What the upserts of the others go by.
        mine: What those of the pipeline do.
        shares: Whether others can read what it remembers.
    """
    other = min(found)
    theirs = found[other].get(REMEMBERS)
    who, whose, what = (other, plan.pipeline, theirs) if theirs is not None else (plan.pipeline, other, mine[REMEMBERS])
    accepted_by = " ".join(f"--beside {name}" for name in sorted(found))
    filled = "filled with --full-refresh" if own is None else "under a new name, into a new table"
    comparable = shares_keys(mine, found[other])
    how = "" if comparable else " by other keys or another order,"
    where = " where the other does not find them" if comparable else ""
    choices = [
        f"write both as one pipeline, source >> union(other) >> sink, {filled}",
        f"where the two never write the same key, run once with `helios run {accepted_by}`",
    ]
    if not comparable:
        choices.insert(0, "give both the same keys and the same order_by column, and they share what they remember")
    elif begins_sharing(plan):
        old = other if shares else plan.pipeline
        choices.insert(0, f"run {old} once with `helios run --new-checkpoint`, and it shares what it remembers")
    return InputError(
        f"{other} upserts into {plan.write.table.text}, too,{how} and {who} remembers {what}{where}: a late row that "
        f"{whose} writes would bring back a deleted key, or replace a newer row; nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"{'; or '.join(choices)}.",
    )


def sharing(plan: Plan, own: Upserts | None, others: Mapping[str, Upserts]) -> list[str]:
    """The notes of a plan on other pipelines that share the keys that they remember with it.

    Args:
        plan: The pipeline.
        own: Its own upserts until now; None before its first start.
        others: The upserts of the others.
    """
    mine = upsert_terms(plan)
    if mine is None or (own is not None and not own.shares):
        return []
    return [
        f"{name} upserts by the same keys and order: each knows the keys that the other has deleted"
        for name, one in sorted(others.items())
        if one.shares and one.branch == plan.write.sink.branch_name and shares_keys(mine, one.terms)
    ]
