"""From recorded messages to records: calls that left no tool span, and results that tool spans lack.

``assemble.extract_steps`` reads a whole set of recorded spans: it finds the calls that models requested, matches them
with tool spans, and looks up their results in the inputs of later model calls. Of this folder, the running application
uses ``asked`` only.
"""
