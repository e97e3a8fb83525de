"""Recorded runs of other origins: one loader a format, all into the step lines that ``trajectory-guard replay`` reads."""
