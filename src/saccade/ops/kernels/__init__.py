"""GPU kernels, written in Triton. Modules that hold kernels are imported by the functions that call them, not before.

- `tile.py` what happens to one tile of scores, `forward.py` and `backward.py` the kernels made of it;
- `packing.py` items of unequal length in full tiles, `tuning.py` how the work is cut;
- `similarity.py` and `autograd.py` how the kernels are called;
- `maxsim.py` late interaction over region codes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache


def kernels_wanted() -> bool:
    """Whether a GPU should use them: with SACCADE_KERNELS=1, until they have been measured on one."""
    return os.environ.get("SACCADE_KERNELS", "0") == "1" and have_triton()


@cache
def have_triton() -> bool:
    """Whether kernels can be compiled; where a GPU is asked for and they cannot, one line says what would help."""
    if importlib.util.find_spec("triton") is not None:
        return True
    print("note: Triton is not installed: the GPU takes slower paths (`pip install triton`)", file=sys.stderr)
    return False


__all__ = ["have_triton", "kernels_wanted"]
