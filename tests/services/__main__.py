"""`python -m tests.services install|list|start`, from the checkout's folder."""

from __future__ import annotations

import json
import signal
import sys
import time

import click

from tests.services.artifacts import cache
from tests.services.rows import BY_NAME, ROWS
from tests.services.server import StartFailed, Unavailable

NAME = click.Choice(list(BY_NAME))


@click.group()
def main() -> None:
    """The real servers of the tests."""


@main.command()
@click.argument("names", nargs=-1, type=NAME)
def install(names: tuple[str, ...]) -> None:
    """Builds or fetches what servers need, once, into Helios's cache; all servers by default."""
    rows = [row for row in ROWS if not names or row.name in names]
    outcomes = []
    for row in rows:
        begun = time.monotonic()
        try:
            row.install(lambda text, name=row.name: click.echo(f"{name}: {text}"))  # type: ignore[misc]
            problem = row.missing()
        except Unavailable as error:
            problem = error
        outcomes.append((row, problem, time.monotonic() - begun))
    click.echo(f"\nin {cache()}:")
    for row, problem, seconds in outcomes:
        click.echo(f"  {row.name:8} {seconds:6.1f} s  {problem.cause if problem else 'ready'}")
    # A server asked for by name must be had; of all of them, some may not exist for this machine.
    if names and any(problem for _, problem, _ in outcomes):
        sys.exit(1)


@main.command("list")
def show() -> None:
    """Which servers can be started, and why others cannot."""
    for row in ROWS:
        problem = row.missing()
        click.echo(f"{row.name:8} {row.about:40} {problem.cause if problem else 'ready'}")


@main.command()
@click.argument("name", type=NAME)
def start(name: str) -> None:
    """Starts a server, prints its addresses as JSON, and ends it at Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with BY_NAME[name].running() as server:
            click.echo(json.dumps(server.addresses()))
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (Unavailable, StartFailed) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m tests.services")
