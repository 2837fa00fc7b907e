#!/usr/bin/env bash
# Makes .venv from requirements-dev.lock, with Helios installed from this checkout. PYTHON names the interpreter.
# On Debian as root a missing python3-venv is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}

# Another interpreter that was asked for is not Debian's to mend.
if [ "$python" = python3 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
    ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "No Python with venv here: installing it from Debian." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -qq -y --no-install-recommends python3 python3-venv >&2
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Helios needs Python 3.11 or later, and '$python' is not one: run make with PYTHON=/path/to/python3.11." >&2
    exit 1
fi

# An environment that was moved or whose interpreter is gone cannot be mended, only made again.
.venv/bin/python -m pip --version >/dev/null 2>&1 || rm -rf .venv
[ -d .venv ] || "$python" -m venv .venv
echo "Installing requirements-dev.lock into .venv (Spark alone is 400 MB: some minutes the first time)." >&2
# uv takes a third of pip's time, and pip knows registries that are set up for it alone.
.venv/bin/python -m pip install --quiet --disable-pip-version-check uv &&
    .venv/bin/uv pip install --quiet --python .venv/bin/python -r requirements-dev.lock 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
# An editable install is not compiled, and compiling at every start would double the time of `helios --help`.
.venv/bin/python -m compileall -q helios
