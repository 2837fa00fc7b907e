"""Deliveries of webhooks as a kind of source."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import Column, Schema
from helios.sources.common.describe import declared_columns
from helios.sources.common.kind import SourceKind
from helios.sources.files.folder_position import FolderPosition
from helios.sources.webhook.declare import METADATA as WEBHOOK_METADATA
from helios.sources.webhook.declare import WebhookSource


def _describe(source: WebhookSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source) or Schema((Column("body", "string"),))
    if source.extra == "add":
        return ReadPlan(source=source), []  # the undeclared fields are known only when the bodies are read
    added = tuple(Column(name, WEBHOOK_METADATA[name]) for name in source.metadata)
    return ReadPlan(source=source, schema=Schema((*added, *schema.columns))), []


WEBHOOK = SourceKind(
    declared=WebhookSource,
    reader="helios.sources.webhook.spark.reader:WebhookReader",
    logged=True,
    position=FolderPosition,
    describe=_describe,
    counts_rows=False,
    lag="helios.sources.files.lag:lag",
    failures="helios.sources.files.spark.failures:failure",
    companion="helios.sources.webhook.receiving:receiving",
    read_reason="stateless over stored deliveries: each batch reads the segments that the source's log names",
    feed="helios.testing.feeds:WebhookFeed",
)
