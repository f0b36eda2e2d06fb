"""Statistics: intervals of means, medians, quantiles and ratios; repeated looks at growing data; multiple
comparisons.

The input is numbers and the output is intervals. This package must not know trials, arms or counters."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
