"""Quality of a model's answers: where scores come from, and what becomes of them."""
