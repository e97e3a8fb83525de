"""Faults with real processes: what a collector survives, and what is counted at a receiving end that is not ours."""
