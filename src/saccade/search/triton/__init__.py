"""Late interaction over region codes in Triton. The modules in here import Triton: the functions that need them do it.

`maxsim.py` has the kernels that score all pictures, `launch.py` the words as they want them and how they are called;
`lists.py` finds the best pictures without waiting for the host.
"""

from __future__ import annotations

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.int8)  # of codes
MAX_WORDS = 256  # of all queries of one launch: what the registers of a block hold
MAX_NARROW_DIM = 256  # of a code: what shared memory holds of so many words; wider ones go in chunks
MAX_DIM = 2048  # of a code
CHUNK = 64  # dimensions of a wide code that are read at once
WORD_BYTES = 64 << 10  # of shared memory, for the words of one query
MAX_LISTED = 1024  # k, of lists


def power_of_two(number: int) -> int:
    """The least that is at least so much."""
    return 1 << max(0, number - 1).bit_length()
