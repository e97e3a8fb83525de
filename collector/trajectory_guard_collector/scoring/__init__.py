"""Scoring of a fleet: turns spans into steps, steps into trajectories, trajectories into verdicts."""
