"""GPU kernels in Triton. The modules in here import Triton, and are imported by the functions that call them.

- `tile.py` what happens to one tile of scores, `attention_kernels.py` the kernels made of it, for all forms, precisions
  and for gradients; `attention.py` how they are called;
- `block_cosines.py` GSMN's matching of nodes; `memory_steps.py` IMRAM's steps and memory; `phrase_matching.py` HGR's
  phrases that look for frames; `packed_attention.py` a transformer's attention within items of few tokens.
"""

from __future__ import annotations

BIN = 64  # places of a bin, which is a tile's side: the most vectors that an item may have
MAX_STATIC_SCORES = 1 << 27  # with so many, padding and all, a GPU is done sooner than a host has packed a batch
