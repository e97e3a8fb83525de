"""Every nudge and stop carries a certificate: write them down, check them later, and see a changed one fail.

Run: python examples/certificates.py   (offline; needs no extra)
"""

import json
import tempfile
from pathlib import Path

from trajectory_guard import Certificate, Engine, StepRecord, args_hash, result_hash
from trajectory_guard.cli.main import main as trajectory_guard


def looping_run():
    """Verdicts on an agent that makes one call six times. In an application the span processor does this."""
    engine = Engine()
    state = engine.new_state("order 17")
    args, result = {"query": "return policy"}, "The shop is open from nine to five, and closed on Mondays."
    for number in range(6):
        yield engine.observe(
            state,
            StepRecord(f"{number:016x}", "order 17", "search", args_hash(args), result_hash("success", result),
                       timestamp=float(number), args=args, result=result),
        )  # fmt: skip


def main() -> None:
    due = [verdict for verdict in looping_run() if verdict.intervenes]
    for verdict in due:
        print(verdict.level, "-", verdict.certificate.rule, verdict.certificate.verify().status)
    print("\n" + due[0].nudge + "\n")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "certificates.jsonl")
        file.write_text("\n".join(one.certificate.to_json() for one in due), encoding="utf-8")
        print("$ trajectory-guard verify certificates.jsonl   # exit status", trajectory_guard(["verify", str(file)]))
        changed = json.loads(due[0].certificate.to_json())
        changed["facts"]["count"] = 4
        print("\nafter one number was changed:", *Certificate.from_plain(changed).verify().problems, sep="\n  ")


if __name__ == "__main__":
    main()
