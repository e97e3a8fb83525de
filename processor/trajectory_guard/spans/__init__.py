"""From one span to records: what a tool span says of a call, and a model span of tokens and cost.

``extract`` builds the ``StepRecord`` of a tool span from its arguments, result, outcome and identity; ``duplicates``
finds the spans that repeat another. The values are read by their shape; ``dialects`` says under which attributes.
"""
