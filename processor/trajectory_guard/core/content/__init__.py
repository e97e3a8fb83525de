"""What the text of a call and of its answer says: noise, errors, emptiness, wrappers, lists, frames."""
