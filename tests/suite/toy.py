"""The toy source of tests/toy, as a package that is installed beside Helios."""

from __future__ import annotations

import tomllib
from pathlib import Path

TOY = Path(__file__).parents[1] / "toy"


def installed(folder: Path) -> list[str]:
    """Writes what an installer keeps of the package, and gives the folders in which Python finds it."""
    project = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]
    kept = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    kept.mkdir(parents=True)
    (kept / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    lines = [line for group, found in points for line in (f"[{group}]", *(f"{k} = {v}" for k, v in found.items()))]
    (kept / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return [str(TOY), str(folder)]
