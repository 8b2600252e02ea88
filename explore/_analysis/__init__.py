"""What files of runs say: comparisons, statistics, reports. Imports no torch."""
