"""Start-up times of what needs no JVM: the import, the help, and checking and planning the flights example.

    python perf/startup.py --rounds 10

Each figure is a whole process but for the import, which is timed inside it. The parent compiles the package first.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import helios

ROOT = Path(__file__).parent.parent
FLIGHTS = str(ROOT / "examples" / "flights.py")
IMPORT = "import time; t = time.perf_counter(); import helios; print(time.perf_counter() - t)"
BOUNDS = {"import helios": 0.1, "helios --help": 0.15}


def commands(data: Path) -> dict[str, list[str]]:
    """The commands, with a folder where the files of the example would be: `check` tells of one that is missing."""
    (data / "flights").mkdir()
    (data / "weather.csv").touch()
    (data / "airlines.csv").touch()
    flights = [FLIGHTS, "--set", f"data={data}"]
    return {
        "helios --help": ["-m", "helios", "--help"],
        "helios check examples/flights.py": ["-m", "helios", "check", *flights],
        "helios plan examples/flights.py": ["-m", "helios", "plan", *flights],
    }


def process(arguments: list[str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    compileall.compile_dir(str(Path(helios.__file__).parent), quiet=2)
    print(f"{'':34}  median     best    worst    bound")
    measured = {"import helios": [float(process(["-c", IMPORT])[1]) for _ in range(rounds + 1)][1:]}
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as data:
        for name, arguments in commands(Path(data)).items():
            measured[name] = [process(arguments)[0] for _ in range(rounds + 1)][1:]
    for name, times in measured.items():
        figures = [statistics.median(times), min(times), max(times), BOUNDS.get(name, 1.0)]
        print(f"{name:34}" + "".join(f"{figure * 1000:6.0f} ms" for figure in figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
