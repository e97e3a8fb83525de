"""``trajectory-guard report``: an HTML page about recorded runs."""
