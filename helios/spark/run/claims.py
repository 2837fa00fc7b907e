"""The record with which a checkpoint claims its target, before its first batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyspark.sql import SparkSession

from helios.plan.nodes import Plan
from helios.plan.other_upserts import upsert_terms
from helios.spark.checkpoint.files import Identity
from helios.spark.run.quarantines import former_names, noted
from helios.spark.run.renamed import take_along
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, parse
from helios.table.refs import LEDGER


def first_claim(plan: Plan, identity: Identity, old: Record | None, beside: Collection[str]) -> Record:
    """The record before the first batch of a checkpoint.

    It keeps the old position, as a batch pipeline recognizes identical inputs by it, and the old snapshot, behind which
    the target must not be rolled back.

    Args:
        plan: The pipeline.
        identity: The identity of the checkpoint.
        old: The pipeline's record until now; None without one.
        beside: Pipelines beside which this one is told to write.
    """
    claim = old or Record(checkpoint="", steps=plan.fingerprint)
    claim = claim.renamed(plan.was) if old is not None and plan.was is not None else claim
    accepted = tuple(dict.fromkeys((*claim.beside, *beside)))
    claim = replace(claim, checkpoint=identity.id, batch=-1, aside=False, upserts=upsert_terms(plan), beside=accepted)
    claim = replace(claim, audited=claim.audited or bool(plan.write.iceberg.audits))
    return noted(plan, claim)


def write_claim(
    spark: SparkSession, plan: Plan, ledger: Ledger, identity: Identity, claim: Record, *, old: Record | None
) -> None:
    """Writes this checkpoint, and the additions of the claim, into the target's record before the first batch.

    Args:
        spark: The session.
        plan: The pipeline.
        ledger: Its record in the target.
        identity: The identity of the checkpoint.
        claim: What `first_claim` gave.
        old: The pipeline's record until now; None without one.
    """
    was = plan.was
    begins = identity.pipeline == was or not identity.target_uuid
    if was is not None and begins:
        take_along(spark, plan, ledger.table, was, former_names(plan, old))
    if was is not None and identity.pipeline == was:
        # By its property: where that has moved already, the stamps of snapshots tell of older batches.
        text = ledger.table.properties().get(LEDGER + was)
        moved = parse(text, LEDGER + was, ledger.table.name()) if text is not None else ledger.load()
        moved = moved or Ledger(ledger.table, was, identity.id, "", ledger.branch).load()
        ledger.claim(_adding(claim, (moved or claim).renamed(was)), forget=was)
    elif begins or (old is not None and _adding(claim, old) != old):
        record = ledger.load()
        if record is None or (begins and record.checkpoint != identity.id):
            ledger.claim(claim, forget=was)
        elif record.checkpoint == identity.id and (more := _adding(claim, record)) != record:
            ledger.claim(more)


def _adding(claim: Record, record: Record) -> Record:
    """A record with the additions of a claim: accepted pipelines, a quarantine, its folder of keys, and an audit."""
    beside = tuple(dict.fromkeys((*record.beside, *claim.beside)))
    quarantines = tuple(dict.fromkeys((*record.quarantines, *claim.quarantines)))
    keys = record.keys or (claim.keys if record.checkpoint == claim.checkpoint else None)
    audited = record.audited or claim.audited
    return replace(record, beside=beside, quarantines=quarantines, keys=keys, audited=audited)
