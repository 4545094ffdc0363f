"""mcptrace-run as a user starts it: a process of its own, with a real receiver behind it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

APP = """
import sys
from opentelemetry import trace
with trace.get_tracer("app").start_as_current_span("in the program"):
    print(__name__, __file__ if "__file__" in globals() else None, sys.argv, sys.path[0])
"""


@pytest.fixture
def run(tmp_path: Path, http_receiver: Any) -> Run:
    """Runs mcptrace-run in ``tmp_path``; ``env`` is added to a clean environment."""

    def start(*arguments: str, env: dict[str, str] | None = None, input: str = "") -> Any:
        environment = {
            "PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(tmp_path / "site"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": http_receiver.endpoint.removesuffix("/v1/traces"),
            "OTEL_TRACES_SAMPLER": "always_on",
            **(env or {}),
        }
        return subprocess.run(
            [sys.executable, "-m", "mcptrace.run", *arguments],
            cwd=tmp_path,
            env=environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            # A job in the background ignores it, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    (tmp_path / "bin").mkdir()
    (tmp_path / "site").mkdir()
    return start


def distribution(tmp_path: Path, name: str, group: str, points: str, code: str) -> None:
    """A package with entry points, as pip would have left it."""
    site = tmp_path / "site"
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\nProvides-Extra: instruments\n"
        "Requires-Dist: no-such-library >= 1 ; extra == 'instruments'\n"
    )
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}\n")


@pytest.mark.parametrize(
    "form",
    [
        ["app.py"],
        ["python", "app.py"],
        ["python3.11", "-u", "app.py"],
        ["--", "python", "app.py"],
        ["--", "app.py"],
    ],
)
def test_script_sees_what_python_would_show_it(
    tmp_path: Path, run: Run, http_receiver: Any, form: list[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = run("--service-name", "svc", *form, "--flag", "-m", "x")
    assert done.returncode == 0, done.stderr
    script = tmp_path / "app.py"
    assert done.stdout == f"__main__ {script} ['app.py', '--flag', '-m', 'x'] {tmp_path}\n"
    assert http_receiver.names() == ["in the program"]
    (group,) = http_receiver.requests()[0].resource_spans
    names = {item.key: item.value.string_value for item in group.resource.attributes}
    assert names["service.name"] == "svc"


@pytest.mark.parametrize(
    "form",
    [["-m", "package"], ["--", "-m", "package"], ["python", "-m", "package.__main__"]],
)
def test_module_runs_as_main_of_its_package(
    tmp_path: Path, run: Run, http_receiver: Any, form: list[str]
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(APP + "from . import other\nprint(__package__)\n")
    (package / "other.py").write_text("")
    done = run(*form, "a", "-b")
    assert done.returncode == 0, done.stderr
    main = package / "__main__.py"
    expected = f"__main__ {main} ['{main}', 'a', '-b'] {tmp_path}\npackage\n"
    assert done.stdout == expected
    assert http_receiver.names() == ["in the program"]


@pytest.mark.parametrize("name", ["app.py", "./app.py", "sub/../app.py", "folder", "app.zip"])
def test_program_is_shown_what_python_shows_it(tmp_path: Path, run: Run, name: str) -> None:
    for folder in ("sub", "folder"):
        (tmp_path / folder).mkdir()
    for script in ("app.py", "folder/__main__.py"):
        (tmp_path / script).write_text(APP + "print(__spec__ and __spec__.name, __package__)\n")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(tmp_path / "app.py", "__main__.py")
    assert run("python", name, "x").stdout == _python(tmp_path, name, "x").stdout


@pytest.mark.parametrize(
    "code",
    [
        "def f(): 1 / 0\ntry: f()\nexcept Exception as error: raise KeyError(1) from error",
        "def f(: pass",
        "import sys\nsys.excepthook = lambda *_: print('the hook', _[2].tb_lineno, file=sys.stderr)"
        "\n1 / 0",
    ],
)
def test_traceback_of_the_program_is_as_python_prints_it(
    tmp_path: Path, run: Run, code: str
) -> None:
    (tmp_path / "app.py").write_text(code)
    done = run("python", "app.py")
    assert done.returncode == 1
    assert done.stderr == _python(tmp_path, "app.py").stderr != ""


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What plain python does with the program."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_code_and_standard_input_run(run: Run, http_receiver: Any) -> None:
    assert run("python", "-c", APP, "x").stdout == "__main__ None ['-c', 'x'] \n"
    assert run("python", "-", "y", input=APP).stdout == "__main__ None ['-', 'y'] \n"
    assert http_receiver.names() == ["in the program"] * 2


def test_console_script_on_the_path_runs(tmp_path: Path, run: Run, http_receiver: Any) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.write_text("#!/usr/bin/env python3\n" + APP)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "tool").mkdir()  # a folder of that name here does not stand in the way
    done = run("tool", "serve")
    assert done.stdout == f"__main__ {tool} ['{tool}', 'serve'] {tmp_path}/bin\n"
    assert http_receiver.names() == ["in the program"]


def test_folder_and_zip_with_main_run(tmp_path: Path, run: Run, http_receiver: Any) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(APP)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", APP)
    assert run("./folder").returncode == 0
    assert run("app.zip").returncode == 0
    assert http_receiver.names() == ["in the program"] * 2


@pytest.mark.parametrize(
    ("code", "returncode", "error"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('bye')", 1, "bye"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import mcptrace; raise mcptrace.ConfigError('mine')", 1, "ConfigError: mine"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "Interrupt"),
        ("def f(: pass", 1, "SyntaxError"),
    ],
)
def test_end_of_the_program_is_its_own(run: Run, code: str, returncode: int, error: str) -> None:
    done = run("python", "-c", code)
    assert done.returncode == returncode
    assert error in done.stderr
    assert bool(error) == bool(done.stderr)


def test_spans_of_exit_handlers_and_forked_workers_arrive(
    tmp_path: Path, run: Run, http_receiver: Any
) -> None:
    (tmp_path / "app.py").write_text(
        "import atexit, multiprocessing\n"
        "from opentelemetry import trace\n"
        "def span(name): trace.get_tracer('t').start_span(name).end()\n"
        "if __name__ == '__main__':\n"
        "    atexit.register(span, 'at exit')\n"
        "    worker = multiprocessing.get_context('fork').Process(target=span, args=('worker',))\n"
        "    worker.start(); worker.join()\n"
    )
    done = run("python", "app.py")
    assert done.returncode == 0, done.stderr
    assert http_receiver.names() == ["at exit", "worker"]


@pytest.mark.parametrize(
    ("arguments", "returncode", "error"),
    [
        ([], 2, "no program; see mcptrace-run --help"),
        (["no-such-program"], 127, "no-such-program: not found"),
        (["no/such.py"], 127, "no/such.py: no such file"),
        (["python", "no/such.py"], 2, "can't open file 'no/such.py'"),
        (["sh", "-c", "true"], 126, "not a Python program"),
        (["python"], 2, "there is nothing to trace"),
        (["python", "-X", "dev", "a.py"], 2, "python -X ... -m mcptrace.run"),
        (["python", "-c"], 2, "-c needs code"),
        (["python", "empty"], 1, "can't find '__main__' module in 'empty'"),
        (["-m"], 2, "-m needs the name of a module"),
        (["-m", "no_such_module"], 1, "no module named no_such_module"),
        (["-m", "json"], 1, "no module named json, or none that can be run"),
        (["--protocol", "smoke", "app.py"], 2, "protocol='smoke'"),
        (["--endpoint", "ftp://x", "python", "-c", "pass"], 2, "endpoint='ftp://x'"),
    ],
)
def test_what_cannot_run_says_why(
    tmp_path: Path, run: Run, arguments: list[str], returncode: int, error: str
) -> None:
    (tmp_path / "app.py").write_text("print('ran')")
    (tmp_path / "empty").mkdir()
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (returncode, "")
    assert done.stderr.startswith("mcptrace-run: ")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


ADAPTERS = """
def install(): print("installed")
def fail(): raise RuntimeError("no good")
"""
INSTRUMENTOR = """
class One:
    def instrument(self, **kwargs): print("instrumented", kwargs)
"""


def test_adapters_of_present_frameworks_are_installed_before_the_program(
    tmp_path: Path, run: Run
) -> None:
    points = "framework = adapters:install\nbroken = adapters:fail\nabsent = adapters:install"
    distribution(tmp_path, "adapters", "mcptrace_adapter", points, ADAPTERS)
    for name in ("framework", "broken"):
        (tmp_path / "site" / f"{name}.py").write_text("raise ImportError('imported too early')")
    (tmp_path / "site" / "absent").mkdir()  # a folder of that name is no framework
    done = run("python", "-c", "print('program')")
    assert (done.returncode, done.stdout) == (0, "installed\nprogram\n")
    assert "error in adapter broken, ignored" in done.stderr
    off = run("--no-adapter", "framework", "--no-adapter", "broken", "python", "-c", "")
    assert (off.returncode, off.stdout, off.stderr) == (0, "", "")


def test_instrumentations_follow_the_environment_and_what_is_installed(
    tmp_path: Path, run: Run
) -> None:
    site = tmp_path / "site"
    distribution(tmp_path, "one", "opentelemetry_instrumentor", "one = one:One", INSTRUMENTOR)
    (site / "one-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: one\n")
    distribution(tmp_path, "two", "opentelemetry_instrumentor", "two = two:One", INSTRUMENTOR)
    done = run("python", "-c", "", env={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests"})
    assert (done.returncode, done.stdout) == (0, "instrumented {'skip_dep_check': True}\n")
    none = run("python", "-c", "", env={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests, one"})
    assert (none.returncode, none.stdout) == (0, "")
    star = run("python", "-c", "", env={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"})
    assert (star.returncode, star.stdout) == (0, "")


def test_real_instrumentation_traces_a_request_of_the_program(
    tmp_path: Path, run: Run, http_receiver: Any
) -> None:
    url = http_receiver.endpoint.replace("/v1/traces", "/target")
    code = f"import requests; requests.post({url!r}, data=b'')"
    done = run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert http_receiver.names() == ["POST"]
    assert any("traceparent" in headers for headers in http_receiver.headers)


def test_check_says_what_would_be_instrumented_and_runs_nothing(tmp_path: Path, run: Run) -> None:
    points = "framework = adapters:install\nabsent = adapters:install\noff = adapters:install"
    distribution(tmp_path, "adapters", "mcptrace_adapter", points, ADAPTERS)
    distribution(tmp_path, "two", "opentelemetry_instrumentor", "two = two:One", INSTRUMENTOR)
    (tmp_path / "site" / "framework.py").write_text("")
    (tmp_path / "app.py").write_text("print('ran')")
    done = run("--check", "--service-name", "svc", "--no-adapter", "off", "python", "app.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "service_name svc",
        "protocol http/protobuf",
        "sampler always_on",
        "program script app.py",
        "KIND NAME ON WHY",
        "adapter framework yes framework is installed",
        "adapter absent no absent is not installed",
        "adapter off no switched off by --no-adapter",
        "instrumentor requests yes what it instruments is installed",
        "instrumentor two no needs no-such-library>=1, found none",
    ):
        assert line in lines
    assert "ran" not in done.stdout


def test_check_of_a_program_that_is_not_there_says_so_after_the_table(run: Run) -> None:
    done = run("--check", "python", "nothere.py")
    assert (done.returncode, done.stderr) == (2, "mcptrace-run: can't open file 'nothere.py'\n")
    assert "KIND" in done.stdout
    assert "program" not in done.stdout


def test_insecure_sends_to_an_endpoint_without_scheme_in_plain_text(
    run: Run, grpc_receiver: Any
) -> None:
    target = grpc_receiver.endpoint.removeprefix("http://")
    options = ["--insecure", "--protocol", "grpc", "--endpoint", target]
    done = run(*options, "python", "-c", APP)
    assert (done.returncode, done.stderr) == (0, "")
    assert grpc_receiver.names() == ["in the program"]
