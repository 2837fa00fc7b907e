"""Starts the receiver of webhooks, an HTTP server that stores deliveries in segments, which a run reads.

The receiver answers 200 once a delivery is durable. It needs the extra `helios-iceberg[webhook]`, but no Spark and no
Java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from helios.errors import EnvironmentProblem
from helios.sources.webhook.declare import WebhookSource

RECEIVING = "helios.sources.webhook.receiving:receiving"
"""The name of the function that receives deliveries next to a pipeline, for `SourceKind.companion`."""


@contextmanager
def receiving(
    sources: Sequence[WebhookSource], log: Callable[[str], None] = lambda line: None, *, alone: bool = False
) -> Generator[list[str], None, None]:
    """Receives the deliveries of sources in threads of this process.

    Args:
        log: Receives a line when deliveries cannot be stored, and a line when they can be stored again.
        alone: Whether it is an error if another process already receives the deliveries of a source. Otherwise the
            source is left to that process.

    Returns:
        The URLs that are served.

    Raises:
        EnvironmentProblem: The extra is not installed.
        InputError: The declared columns do not parse, or a secret is malformed.
        RunError: Another program uses an address, or `alone` is set and another process receives the deliveries.
    """
    try:
        from helios.sources.webhook import serve
    except ImportError as error:
        raise EnvironmentProblem(
            f"webhooks are received with {error.name}, which is not installed.",
            where=sources[0].origin,
            fix="pip install 'helios-iceberg[webhook]'.",
        ) from error
    with serve.receiving(sources, log, alone=alone) as urls:
        yield urls
