"""What several seeds say together: the mean and how far they lie apart, as tables write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """`71.3 ± 0.8`: the mean and the standard deviation of a sample; of one value, the value alone."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean
