"""From recorded messages to ``StepRecord`` objects. In process only ``asked`` runs."""
