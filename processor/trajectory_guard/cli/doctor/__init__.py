"""``trajectory-guard doctor``: what keeps the guard from working here."""
