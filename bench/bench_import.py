"""What importing mcptrace costs over `opentelemetry.trace` alone: wall time, in fresh processes.

python bench/bench_import.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

TIMED = "import time; t = time.perf_counter(); {}; print((time.perf_counter() - t) * 1e3)"
VARIANTS = {
    "opentelemetry.trace": "import opentelemetry.trace",
    "mcptrace": "import opentelemetry.trace, mcptrace",
    "opentelemetry.sdk + OTLP/HTTP exporter": (
        "import opentelemetry.trace, opentelemetry.sdk.trace.export,"
        " opentelemetry.exporter.otlp.proto.http.trace_exporter"
    ),
}


def milliseconds(statement: str) -> float:
    command = [sys.executable, "-c", TIMED.format(statement)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=15)
    rounds = arguments.parse_args().rounds
    samples: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):  # alternating, so that a busy moment hits all alike
        for name, statement in VARIANTS.items():
            samples[name].append(milliseconds(statement))
    base = statistics.median(samples["opentelemetry.trace"])
    for name, values in samples.items():
        median = statistics.median(values)
        print(f"{name:<42} {median:7.1f} ms  {median - base:+7.1f} ms")


if __name__ == "__main__":
    main()
