"""``trajectory-guard calibrate``: find the threshold of an embedding model, and say whether it is worth using."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trajectory_guard.cli.output import BAD_INPUT, FINE
from trajectory_guard.core.similarity.calibration import Calibration, Pair, calibrate, read_pairs, settler
from trajectory_guard.core.similarity.cascade import Settler
from trajectory_guard.semantic.calibrations import CalibrationError, bundled_pairs, save_calibration
from trajectory_guard.semantic.model_files import ModelError, load_embed
from trajectory_guard.semantic.settler import ModelSettings, prepare

_NO_MODEL: Final = (
    "pass --model DIR or set TRAJECTORY_GUARD_MODEL_PATH; "
    "TRAJECTORY_GUARD_MODEL_DOWNLOAD=true fetches the default model once"
)


def add_calibrate(commands: Any) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("calibrate", help="find the threshold of an embedding model for type II")
    parser.add_argument("--model", metavar="DIR", help="model directory; default: the configured or cached model")
    parser.add_argument(
        "--pairs", metavar="FILE", help="your own labelled pairs, added to the bundled ones: JSON lines with a, b, same"
    )
    parser.add_argument("--store", metavar="FILE", help="file to keep the result in (JSON, by model)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(run=run_calibrate)


def run_calibrate(options: argparse.Namespace) -> int:
    """Measure, store and print; exit status 0, or 2 if the model, the pairs or the store cannot be used."""
    settings = _settings(options.model, options.store)
    try:
        own = _own_pairs(options.pairs)
        embed = load_embed(settings.path, download=settings.download)
        found = calibrate(embed, [*bundled_pairs(), *own], own=len(own))
        save_calibration(settings.store, found)
    except (ModelError, ValueError) as error:
        text = f"{error.reason}; {_NO_MODEL}" if isinstance(error, ModelError) and error.advice else str(error)
        print(f"trajectory-guard calibrate: {text}", file=sys.stderr)
        return BAD_INPUT
    if options.json:
        print(json.dumps({**found.to_plain(), "reason": found.reason, "stored": str(settings.store)}))
    else:
        print(report(found, settings))
    return FINE


def _settings(model: str | None, store: str | None) -> ModelSettings:
    settings = ModelSettings.from_env()
    return replace(settings, path=model or settings.path, calibration=store or settings.calibration)


def _own_pairs(path: str | None) -> list[Pair]:
    if path is None:
        return []
    try:
        return read_pairs(Path(path).read_text(encoding="utf-8").splitlines(), path)
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror or error}") from None


def report(found: Calibration, settings: ModelSettings) -> str:
    """A calibration as a table for people."""
    own = f", {found.own} of them your own" if found.own else ""
    rows = [
        ("model", f"{settings.path or 'cached default'} (fingerprint {found.fingerprint}, {found.dim} dimensions)"),
        ("pairs", f"{found.positives} reworded, {found.negatives} different{own}"),
        ("threshold", f"{found.tau:.3f} cosine"),
        ("precision", f"{found.precision:.3f}"),
        ("recall", f"{found.recall:.3f}"),
        ("false alarms", f"{found.fpr:.3f} of the different pairs"),
        ("AUC", f"{found.auc:.3f}"),
        ("cosines", f"{found.positive_median:.3f} median of reworded, {found.negative_p95:.3f} 95th percentile of "
                    f"different, {found.floor:.3f} mean of unrelated texts"),
        ("stored in", str(settings.store)),
        ("worth using", "yes" if found.ok else f"no: {found.reason}; the guard will ignore this model"),
    ]  # fmt: skip
    return "\n".join(f"{name:<13} {value}" for name, value in rows)


def settle_pairs(model_dir: str | None) -> Settler:
    """A settler for ``compare --model DIR``, calibrated from the usual store or else on the bundled pairs.

    Raises:
        ModelError: no fastembed, no such directory, a file is missing, or the model is not worth using.
    """
    prepared = prepare(_settings(model_dir, None))
    return settler(prepared.embed, prepared.calibration)
