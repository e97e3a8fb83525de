"""Do two calls of a tool mean the same? Structured comparison first; an embedding model may settle a MAYBE."""

from .comparator import Comparison, NormalForm, Relation, compare, normalize

__all__ = ["Comparison", "NormalForm", "Relation", "compare", "normalize"]
