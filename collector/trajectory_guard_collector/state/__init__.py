"""Keeps trajectories across restarts."""
