from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

ORDER = """
import atexit
from mcptrace.process_exit import call_at_exit, forget

def first(): print("first")
def second(): print("second")
def gone(): print("gone")

call_at_exit(first)
call_at_exit(gone)
call_at_exit(second)
call_at_exit(first)
forget(gone)
forget(gone)
"""

WORKER = """
import multiprocessing.util, os, sys
from mcptrace.process_exit import call_at_exit

def work():
    # A finalizer of the user's own, which may still end spans, comes before ours.
    multiprocessing.util.Finalize(None, print, ("user",), exitpriority=0)

call_at_exit(lambda: print("ours", flush=True))
context = multiprocessing.get_context("fork")
worker = context.Process(target=work)
worker.start()
worker.join()
os._exit(worker.exitcode)
"""

NOTHING = """
import mcptrace
from mcptrace import process_exit
print(process_exit._Hooks.pid, process_exit._Hooks.callbacks)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(ORDER, "first\nsecond\n", id="once each, in the order given"),
        pytest.param(WORKER, "user\nours\n", id="workers too, after their own finalizers"),
        pytest.param(NOTHING, "None []\n", id="importing registers nothing"),
    ],
)
def test_callbacks_run_when_the_process_ends(program: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
