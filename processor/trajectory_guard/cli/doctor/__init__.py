"""``trajectory-guard doctor``: findings that limit the guard in this environment."""
