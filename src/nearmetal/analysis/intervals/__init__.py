"""Statistics: intervals of means, medians, quantiles and ratios; repeated looks at growing data; multiple
comparisons.

The input is numbers and the output is intervals. This package must not know trials, arms or counters."""
