"""Runs a Python program in this process as ``python`` would: argv, path and __main__ alike.

    app.py args            a script, a folder or zip with __main__.py
    -m module args         a module
    python ... args        the interpreter's own forms: script, -m, -c, - and the flags -u -B
    tool args              a console script on PATH that is written in Python

Exceptions, SystemExit and signals are the program's own and pass through, and what is printed
of an exception begins where the program does; the new __main__ stays in place, for what the
program leaves to threads and exit handlers.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

NOT_FOUND = 127
NOT_EXECUTABLE = 126
USAGE = 2

SCRIPT_SUFFIXES = (".py", ".pyw", ".pyz", ".zip")

_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?", re.IGNORECASE)


class LaunchError(Exception):
    """A program that cannot be run; ``exit_code`` as a shell would give it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Program:
    """A program that was found: ``describe`` says which, ``run`` becomes it."""

    def __init__(self, description: str, run: Callable[[], None]) -> None:
        self.describe = description
        self._run = run

    def run(self) -> None:
        """Raises what the program raises, and LaunchError."""
        try:
            self._run()
        except LaunchError:
            raise
        except BaseException as error:
            _print_without_us(error)
            raise


def module_program(arguments: Sequence[str]) -> Program:
    """``-m module args``.  Raises LaunchError."""
    if not arguments:
        raise LaunchError("-m needs the name of a module", USAGE)
    name, rest = arguments[0], list(arguments[1:])
    return Program(f"module {name}", lambda: _run_module(name, rest))


def find_program(arguments: Sequence[str]) -> Program:
    """The program that a command line names.  Raises LaunchError."""
    name, rest = arguments[0], list(arguments[1:])
    if _INTERPRETER.fullmatch(Path(name).name):
        return _interpreter_form(name, rest)
    path = Path(name)
    if path.suffix in SCRIPT_SUFFIXES:
        if not path.exists():
            raise LaunchError(f"{name}: no such file", NOT_FOUND)
        return _script(name, rest)
    found = shutil.which(name)
    if found is not None:
        if not _is_python_script(Path(found)):
            message = f"{found}: not a Python program; it cannot be traced"
            raise LaunchError(message, NOT_EXECUTABLE)
        return _script(found, rest)
    if path.is_file() or (path / "__main__.py").is_file():
        return _script(name, rest)
    raise LaunchError(f"{name}: not found", NOT_FOUND)


def _interpreter_form(name: str, rest: list[str]) -> Program:
    """What follows ``python``; which one it is does not matter, this one runs already."""
    while rest and rest[0] in ("-u", "-B"):
        _apply_flag(rest.pop(0))
    if not rest:
        raise LaunchError(f"{name}: no script, -m or -c; there is nothing to trace", USAGE)
    first = rest.pop(0)
    if first == "-m":
        return module_program(rest)
    if first == "-c":
        if not rest:
            raise LaunchError("-c needs code", USAGE)
        return Program("code", lambda: _run_code(rest[0], ["-c", *rest[1:]]))
    if first == "-":
        return Program("standard input", lambda: _run_code(sys.stdin.read(), ["-", *rest]))
    if first.startswith("-"):
        raise LaunchError(
            f"{first}: the interpreter runs already; use {name} {first} ... -m mcptrace.run",
            USAGE,
        )
    if not Path(first).exists():
        raise LaunchError(f"can't open file {first!r}", USAGE)
    return _script(first, rest)


def _apply_flag(flag: str) -> None:
    """The two flags that can be had later: unbuffered output, and no bytecode files."""
    if flag == "-B":
        sys.dont_write_bytecode = True
        return
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(write_through=True)


def _script(path: str, rest: list[str]) -> Program:
    return Program(f"script {path}", lambda: _run_script(path, rest))


def _run_script(path: str, rest: list[str]) -> None:
    sys.argv = [path, *rest]
    target = Path(path)
    absolute = os.path.join(Path.cwd(), path)  # with its "./", as python has it
    if target.is_dir() or target.suffix in (".pyz", ".zip"):
        _run_folder(path, absolute)
        return
    _set_first_path(str(target.resolve().parent))
    source = target.read_bytes()
    main = _new_main()
    main.__file__ = absolute
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", absolute)
    # Our own __future__ imports are none of the program's.
    _execute(compile(source, absolute, "exec", dont_inherit=True), main)


def _run_folder(path: str, absolute: str) -> None:
    sys.path[0] = absolute  # with every flag: it is where the program is, not where we are
    spec = importlib.machinery.PathFinder.find_spec("__main__", [absolute])
    if spec is None:
        raise LaunchError(f"can't find '__main__' module in {path!r}", 1)
    _run_spec(spec, _code("__main__", spec))


def _run_module(name: str, rest: list[str]) -> None:
    _set_first_path(str(Path.cwd()))
    sys.argv = ["-m", *rest]  # as python has it while it looks for the module
    spec, code = _module_code(name)
    sys.argv[0] = spec.origin or name
    _run_spec(spec, code)


def _run_spec(spec: ModuleSpec, code: CodeType) -> None:
    main = _new_main()
    main.__spec__ = spec
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    main.__file__ = spec.origin
    _execute(code, main)


def _module_code(name: str) -> tuple[ModuleSpec, CodeType]:
    """Where a module is and what it says; for a package, its __main__."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        # A parent package that is missing; one that fails to import something is its own error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        raise LaunchError(f"no module named {name}, or none that can be run", 1)
    return spec, _code(name, spec)


def _code(name: str, spec: ModuleSpec) -> CodeType:
    get_code = getattr(spec.loader, "get_code", None)
    if get_code is None:
        raise LaunchError(f"no module named {name}, or none that can be run", 1)
    code: CodeType | None = get_code(spec.name)
    if code is None:
        raise LaunchError(f"module {name} has no Python code", 1)
    return code


def _run_code(source: str, argv: list[str]) -> None:
    sys.argv = argv
    _set_first_path("")
    name = "<stdin>" if argv[0] == "-" else "<string>"
    _execute(compile(source, name, "exec", dont_inherit=True), _new_main())


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    return main


def _execute(code: CodeType, main: ModuleType) -> None:
    exec(code, main.__dict__)


def _print_without_us(error: BaseException) -> None:
    """Have the exception printed from the program's first frame on, by whoever prints it.

    Python adds our frames again while it leaves them; so they are taken off in the hook, the
    program's own if it has set one.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    hook = sys.excepthook

    def print_it(
        kind: type[BaseException], raised: BaseException, full: TracebackType | None
    ) -> None:
        shown = trace if raised is error else full
        hook(kind, raised.with_traceback(shown), shown)

    sys.excepthook = print_it


def _set_first_path(folder: str) -> None:
    """Put the program's folder where ours is, unless the interpreter was told to have none."""
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[0] = folder


def _is_python_script(path: Path) -> bool:
    """Whether the first lines name Python: directly, or through the shell for long paths."""
    try:
        with path.open("rb") as file:
            head = file.read(4096).splitlines()[:2]
    except OSError:
        return False
    return bool(head) and head[0].startswith(b"#!") and b"python" in b"".join(head).lower()
