"""Speed and memory of the guard, beside the SDK and the peers, in one run: ``python -m tests.bench``."""
