"""The trajectories of a process under evaluation, and the flags that gates read: see ``store``."""
