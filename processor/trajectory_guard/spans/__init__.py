"""From one span to records: the call of a tool span, and the tokens and cost of a model span.

``extract`` builds the ``StepRecord`` of a tool span from its ``content`` (arguments, result, outcome) and ``identity``;
``duplicates`` finds records that repeat another; ``length_limits`` learns where a sender cuts its attributes off.
``dialects`` says under which attributes the values stand; they are read by their shape.
"""
