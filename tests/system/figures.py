"""What a list of measured values is summed up by."""

import math


def percentile(values, share):
    """The smallest value that at least this share of them does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
