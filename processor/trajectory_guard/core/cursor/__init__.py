"""The record of a trajectory: what was asked, done and returned at each boundary."""
