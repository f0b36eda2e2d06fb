"""Statistics: intervals of means, medians, quantiles and ratios, looks at growing data, many comparisons.

Must not know trials, arms or counters: numbers in, intervals out.
"""
