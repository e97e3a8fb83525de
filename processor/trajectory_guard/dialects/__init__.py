"""One row for each vendor of instrumentations: a row names the attributes that are particular to the vendor.

``table`` orders the rows and combines their fields; ``custom`` makes a row of what a user declares in the
configuration. The readers in ``spans`` and ``transcripts`` know no vendor and ask the table.
"""
