"""Scoring of a fleet: spans to steps, steps to trajectories, trajectories to verdicts."""
