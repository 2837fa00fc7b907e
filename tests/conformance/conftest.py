from __future__ import annotations
import importlib.util, sys
from pathlib import Path
_spec = importlib.util.spec_from_file_location("helios_streaming_fixtures", Path(__file__).parents[1] / "streaming" / "conftest.py")
_mod = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _mod
_spec.loader.exec_module(_mod)
shared_spark, world, forget_commit = _mod.shared_spark, _mod.world, _mod.forget_commit
