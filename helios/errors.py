"""Every error that Helios raises on purpose.

HeliosError                 what happened, where in the script, the fix
├── InputError              the input is wrong: exit status 2, nothing was written
│   ├── DeclarationError    an invalid value or `>>`
│   ├── ScriptError         a script that cannot be loaded, or declares no pipeline
│   ├── ConfigError         helios.toml, a profile, a `${NAME}`
│   ├── CheckFailed         all problems that a check found
│   ├── NotFound            a table, catalog, namespace, snapshot or column that does not exist
│   ├── EngineNeeded        a table that only Spark can change
│   └── CheckpointError     a checkpoint that is not this pipeline's, or cannot be trusted
└── RunError                the run failed, or a service is unreachable: exit status 1
    ├── EnvironmentProblem  Java, Spark or jars are missing
    ├── LedgerError         exactly-once cannot be proved; nothing was written
    └── LeaseError          another driver holds the checkpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The line of the user's script that declared something."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class HeliosError(Exception):
    """An error: what happened, where (`script.py:12`) and how to fix it.

    Args:
        what: One sentence that says what is wrong.
        where: The line of the user's script that causes the error; None if no line does.
        fix: The fix, in the imperative.
    """

    exit_status = 1
    code = "H200"
    """The code that the command line prints, and that `helios explain` takes. Most subclasses have their own."""

    def __init__(self, what: str, *, where: Origin | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"{where}{self.what}{fix}"

    def as_json(self) -> dict[str, object]:
        return {
            "error": type(self).__name__,
            "code": self.code,
            "what": self.what,
            "where": str(self.where) if self.where else None,
            "fix": self.fix,
        }


class InputError(HeliosError):
    """The input is wrong; nothing was written."""

    exit_status = 2
    code = "H100"


class DeclarationError(InputError):
    """An invalid value or composition."""

    code = "H101"


class ScriptError(InputError):
    """A script that cannot be loaded, or holds no pipeline."""

    code = "H102"


class ConfigError(InputError):
    """A configuration file, profile or variable that is wrong."""

    code = "H103"


class NotFound(InputError):
    """A table, catalog, namespace, snapshot or column that does not exist."""

    code = "H104"


class EngineNeeded(InputError):
    """Only Spark can change this table; nothing was changed.

    Args:
        table: The table's name.
        fix: The command that makes the change.
        where: The line of the user's script.
    """

    code = "H105"

    def __init__(self, table: str, fix: str, where: Origin | None = None) -> None:
        super().__init__(
            f"table {table} has format v3, whose metadata PyIceberg reads but does not write yet; nothing was changed.",
            where=where,
            fix=fix,
        )


class CheckpointError(InputError):
    """A checkpoint that is not this pipeline's, or cannot be trusted."""

    code = "H106"


class CheckFailed(InputError):
    """All problems of a check at once.

    Args:
        problems: The problems. Each of them is an error.
    """

    def __init__(self, problems: Sequence[HeliosError]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def as_json(self) -> dict[str, object]:
        return {"error": "CheckFailed", "problems": [problem.as_json() for problem in self.problems]}


class RunError(HeliosError):
    """The run failed, or a service is away."""

    code = "H200"


class EnvironmentProblem(RunError):
    """Java, Spark or a jar is missing or does not fit."""

    code = "H201"


class LedgerError(RunError):
    """Exactly-once cannot be proved from what the target retains; nothing was written."""

    code = "H202"


class LeaseError(RunError):
    """Another driver holds the checkpoint."""

    code = "H203"


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not blank; the name of its class if there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def near_miss(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: it suggests the nearest known name, or lists up to twelve.

    Examples:
        >>> near_miss("oders", ["orders", "users"])
        "Did you mean 'orders'?"
        >>> near_miss("x", ["orders", "users"])
        'Known: orders, users.'
        >>> near_miss("x", [])
        'There are none.'
    """
    names = sorted(set(known))
    lowered = {known_name.lower(): known_name for known_name in names}
    import difflib

    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if matches:
        return f"Did you mean {lowered[matches[0]]!r}?"
    if not names:
        return "There are none."
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"Known: {', '.join(names[:12])}{more}."
