"""Lets the tests of the lab use the small photo data sets of tests/data."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "data"))
