"""The sentence model: an extra that settles what the comparator leaves open."""
