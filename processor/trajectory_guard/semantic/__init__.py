"""The sentence model: an extra that decides the pairs of texts that the comparator leaves open."""
