"""Trajectories across restarts."""
