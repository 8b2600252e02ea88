"""Native execution: what networks and objectives do with tensors, recorded once for one lane, and run by compiled
kernels for every lane."""
