"""From one span to records: the call of a tool span, and the tokens and cost of a model span.

``extract`` builds the ``StepRecord`` of a tool span from its arguments, result, outcome and identity; ``duplicates``
finds the spans that repeat another. The values are read by their shape; ``dialects`` says under which attributes.
"""
