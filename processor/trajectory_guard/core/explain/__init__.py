"""The texts and the evidence of a verdict: reason, nudge, closing message, certificate and its verification."""
