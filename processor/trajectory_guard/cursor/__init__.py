"""The trajectory cursor of a process: its configuration, and its place on the board."""
