"""The receiver of webhooks: an HTTP server that answers 200 once a delivery is durable, in segments that a run reads.

It needs neither Spark nor Java, and the extra `helios-iceberg[webhook]`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from helios.errors import EnvironmentProblem
from helios.sources.webhook.declare import WebhookSource

RECEIVING = "helios.sources.webhook.receiving:receiving"
"""The function that receives deliveries beside a pipeline, as the table of sources names it."""


@contextmanager
def receiving(
    sources: Sequence[WebhookSource], told: Callable[[str], None] = lambda line: None, *, alone: bool = False
) -> Generator[list[str], None, None]:
    """Receives the deliveries of sources in threads of this process.

    Args:
        sources: The sources.
        told: What takes a line about deliveries that cannot be taken, and when they are taken again.
        alone: Whether a source whose deliveries another process receives is an error; otherwise it is left to that one.

    Returns:
        The URLs that are served.

    Raises:
        EnvironmentProblem: The extra is not installed.
        InputError: The declared columns do not parse, or a secret is not as its form has it.
        RunError: An address is taken by something else, or `alone` and another one receives.
    """
    try:
        from helios.sources.webhook import serve
    except ImportError as error:
        raise EnvironmentProblem(
            f"webhooks are received with {error.name}, which is not installed.",
            where=sources[0].origin,
            fix="pip install 'helios-iceberg[webhook]'.",
        ) from error
    with serve.receiving(sources, told, alone=alone) as urls:
        yield urls
