"""The record with which a checkpoint claims its target, before its first batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyspark.sql import SparkSession

from helios.plan.nodes import Plan
from helios.plan.other_upserts import upsert_terms
from helios.spark.checkpoint.files import Identity
from helios.spark.run.quarantines import former_quarantines, with_quarantine
from helios.spark.run.renamed import rename_in_tables
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, parse_record
from helios.table.refs import LEDGER


def first_claim(plan: Plan, identity: Identity, old: Record | None, beside: Collection[str]) -> Record:
    """The record of a pipeline in its target before the first batch of a new checkpoint.

    It keeps the old position, by which a batch pipeline recognizes inputs that it has appended already. It keeps the
    old snapshot, by which a rollback of the target is detected.

    Args:
        old: The pipeline's record until now; None if it had no record.
        beside: The pipelines that `--beside` names: their rows of the same sources may be in the target.
    """
    claim = old or Record(checkpoint="", steps=plan.fingerprint)
    claim = claim.renamed(plan.was) if old is not None and plan.was is not None else claim
    accepted = tuple(dict.fromkeys((*claim.beside, *beside)))
    claim = replace(claim, checkpoint=identity.id, batch=-1, aside=False, upserts=upsert_terms(plan), beside=accepted)
    claim = replace(claim, published=None)
    claim = replace(claim, audited=claim.audited or bool(plan.write.iceberg.audits))
    return with_quarantine(plan, claim)


def write_claim(
    spark: SparkSession, plan: Plan, ledger: Ledger, identity: Identity, claim: Record, *, old: Record | None
) -> None:
    """Stores the claim as the record of a new checkpoint; for an older checkpoint, adds what its record lacks.

    Args:
        claim: The record from `first_claim`.
        old: The pipeline's record until now; None if it had no record.
    """
    was = plan.was
    unclaimed = identity.pipeline == was or not identity.target_uuid
    if was is not None and unclaimed:
        rename_in_tables(spark, plan, ledger.table, was, former_quarantines(plan, old))
    if was is not None and identity.pipeline == was:
        # The property under the former name is read first: a record from the stamps in snapshot summaries may be older.
        text = ledger.table.properties().get(LEDGER + was)
        moved = parse_record(text, LEDGER + was, ledger.table.name()) if text is not None else ledger.load()
        moved = moved or Ledger(ledger.table, was, identity.id, "", ledger.branch).load()
        ledger.claim(_with_additions(claim, (moved or claim).renamed(was)), forget=was)
    elif unclaimed or (old is not None and _with_additions(claim, old) != old):
        record = ledger.load()
        if record is None or (unclaimed and record.checkpoint != identity.id):
            ledger.claim(claim, forget=was)
        elif record.checkpoint == identity.id and _with_additions(claim, record) != record:
            ledger.claim(_with_additions(claim, record))


def _with_additions(claim: Record, record: Record) -> Record:
    """The record, extended by the accepted pipelines, the quarantines, the folder of keys and `audited` of a claim."""
    beside = tuple(dict.fromkeys((*record.beside, *claim.beside)))
    quarantines = tuple(dict.fromkeys((*record.quarantines, *claim.quarantines)))
    keys = record.keys or (claim.keys if record.checkpoint == claim.checkpoint else None)
    audited = record.audited or claim.audited
    return replace(record, beside=beside, quarantines=quarantines, keys=keys, audited=audited)
