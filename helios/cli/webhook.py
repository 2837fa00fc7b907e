"""The command `webhook`: receives the deliveries of a script's webhooks, without Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import click

from helios.cli import options, output
from helios.cli.options import ScriptName


@click.command()
@options.script_argument
@options.set_option
@options.common
@options.json_option
def webhook(script: ScriptName, values: dict[str, str], profile: str | None, as_json: bool) -> None:
    """Receive the deliveries of a script's webhooks, without Spark.

    Deliveries are kept in files, called segments, until `helios run` has committed them. A run at the same time does
    not receive deliveries itself. Ctrl-C and SIGTERM end the command after it has answered the current requests.

    \b
    Example:
      helios webhook pipeline.py
    """
    from helios.errors import InputError
    from helios.model.flow import flows
    from helios.sources.kinds import source_kind
    from helios.sources.webhook.receiving import RECEIVING, receiving

    loaded = options.load(script, profile, values, offline=True)
    declared: Iterator[Any] = (flow.source for pipeline in loaded.pipelines for flow in flows(pipeline.stream))
    sources = {source.folder: source for source in declared if source_kind(source).companion == RECEIVING}
    if not sources:
        raise InputError(f"{script.path} has no Webhook.source.", fix="name a script that has one.")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def say(line: str) -> None:
        click.echo(line, err=True)

    with receiving(list(sources.values()), say, alone=True) as urls:
        if as_json:
            output.print_json([{"url": url, "segments": folder} for url, folder in zip(urls, sources, strict=True)])
        for url, folder in zip(urls, sources, strict=True):
            click.echo(f"receiving {url} into {folder}", err=as_json)
        while not stop.wait(0.5):
            pass
    click.echo("stopped", err=as_json)
