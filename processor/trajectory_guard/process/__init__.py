"""A guest in a process: forks, threads, locks, standard streams, and errors that must not reach the host."""
