"""How well loops are found: recorded runs, cases of other projects, own trajectories and pairs of calls."""
