"""What a verdict tells: reason and nudge, the closing message, the certificate and its verification."""
