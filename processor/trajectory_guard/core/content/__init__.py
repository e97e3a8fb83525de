"""Readers of the text of a call and of its answer: noise, errors, emptiness, wrappers, lists, frames."""
