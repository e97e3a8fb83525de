"""``trajectory-guard demo``: scripted agents under real instrumentation."""
