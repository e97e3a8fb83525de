"""MLflow tracing: the inputs and outputs of any span as JSON."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Messages

MLFLOW = Dialect(
    name="mlflow", messages=Messages(raw_inputs=("mlflow.spanInputs",), raw_outputs=("mlflow.spanOutputs",))
)
