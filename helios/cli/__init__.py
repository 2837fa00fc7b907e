"""The command line. Spark, PyIceberg and rich are imported only when a command needs them, so `--help` is fast."""

from __future__ import annotations

import click

import helios
from helios.cli import (
    backfill,
    declare,
    diff,
    doctor,
    explain,
    history,
    maintain,
    output,
    quarantine,
    rehearse,
    rename,
    run,
    status,
    tables,
    ui,
    webhook,
    why,
)
from helios.errors import HeliosError

INTERRUPTED = 130


class Helios(click.Group):
    """The command group. It lists commands in the order of `COMMANDS`, and prints each error as one paragraph."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        settings = ctx.obj = output.Settings()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except HeliosError as error:
            output.report(error, settings)
            ctx.exit(error.exit_status)
        except Exception as error:
            output.report_bug(error, settings)
            ctx.exit(1)


def _install_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    from helios.cli.completion import install

    try:
        written = install(ctx.command, shell)
    except HeliosError as error:
        output.report(error, output.Settings())
        ctx.exit(error.exit_status)
    for path in written:
        click.echo(f"wrote {path}")
    click.echo("Start a new shell, type `helios `, and press Tab.")
    ctx.exit()


@click.group(cls=Helios, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(helios.__version__, prog_name="helios")
@click.option(
    "--install-completion",
    type=click.Choice(["bash", "zsh", "fish", "detected"]),
    is_flag=False,
    flag_value="detected",
    metavar="[bash|zsh|fish]",
    expose_value=False,
    is_eager=True,
    callback=_install_completion,
    help="Install Tab completion of commands, options and files; by default for the shell in $SHELL.",
)
def main() -> None:
    """Declarative Apache Iceberg pipelines on Apache Spark, with exactly-once writes.

    \b
    Example:
      helios init demo
      helios run demo/pipeline.py --once
    """


COMMANDS = (
    declare.init, declare.check, declare.plan, declare.graph, rehearse.rehearse, run.run, ui.ui, webhook.webhook,
    doctor.doctor, explain.explain, doctor.jars,
    tables.tables, tables.schema, tables.snapshots, history.history, why.why, diff.diff,
    maintain.expire, maintain.rollback, maintain.tag, maintain.branch, maintain.compact, maintain.orphans,
    rename.rename, quarantine.quarantine, backfill.backfill, status.status,
)  # fmt: skip
"""All commands, in the order of `helios --help`."""

for _command in COMMANDS:
    main.add_command(_command)
