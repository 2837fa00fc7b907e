"""Reads from the metadata of a pipeline's target which batches the pipeline has committed. No JVM is needed."""

from __future__ import annotations

from helios.errors import InputError
from helios.plan.nodes import Plan
from helios.table.commits import commits
from helios.table.ledger import records
from helios.table.readers import warehouses
from helios.table.refs import MAIN
from helios.table.rehearsal import History, history_of


def committed_history(plan: Plan) -> History:
    """The batches that a pipeline has committed; raises `InputError` if there are none."""
    write = plan.write
    history = History()
    if write.table.catalog.exists(write.table.name_in_catalog):
        table = write.table.catalog.load(write.table.name_in_catalog)
        metadata = table.iceberg.metadata
        known = records(metadata.properties, table.name)
        own_records = [known[name] for name in write.pipeline_names if name in known]
        former_names = [name for record in own_records for name in record.formerly]
        known_checkpoints = {plan.pipeline: plan.checkpoint} if plan.checkpoint else {}
        all_commits = commits(
            table, warehouses(plan.all_catalogs), known_checkpoints, branch=write.sink.branch_name or MAIN
        )
        history = history_of(metadata, all_commits, [*write.pipeline_names, *former_names])
    if not history.batches:
        others = f" (`helios history {write.table.text}` lists the commits of other writers)" if history.others else ""
        raise InputError(
            f"{plan.pipeline} has committed nothing into {write.table.text}: there is nothing to rehearse{others}.",
            where=plan.origin,
            fix="run it first, `helios run SCRIPT --once`, or test it with helios.testing.",
        )
    return history
