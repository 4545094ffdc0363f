"""Patches on a real module, written to sys.path, imported before and after ``install``."""

from __future__ import annotations

import importlib
import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracerProvider

import mcptrace
from mcptrace.guard import reraise_in_tests
from mcptrace.patching import Patches
from mcptrace.setup import _Program
from mcptrace.testing import captured_spans

SOURCE = "class Model:\n    def run(self):\n        return ['model']\n"

_numbers = itertools.count()


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework that can be imported, and is not yet."""
    name = f"framework_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def _around(before: Callable[[Any], list[str]], label: str) -> Callable[[Any], list[str]]:
    def run(self: Any) -> list[str]:
        return [label, *before(self)]

    return run


def _patches(name: str, label: str = "ours") -> Patches:
    def patch(module: ModuleType) -> None:
        patches.replace(module.Model, "run", lambda before: _around(before, label))

    patches = Patches((name,), patch)
    return patches


def test_a_module_imported_before_is_patched_at_once_and_put_back(name: str) -> None:
    model: Any = importlib.import_module(name).Model
    original, patches = vars(model)["run"], _patches(name)
    assert model().run() == ["model"]
    patches.install()
    assert model().run() == ["ours", "model"]
    patches.uninstall()
    assert vars(model)["run"] is original


def test_a_module_is_patched_when_it_is_imported_and_not_imported_for_it(name: str) -> None:
    patches = _patches(name)
    patches.install()
    assert name not in sys.modules
    model: Any = importlib.import_module(name).Model
    assert model().run() == ["ours", "model"]


def test_a_module_imported_after_uninstall_is_left_alone(name: str) -> None:
    patches = _patches(name)
    patches.install()
    patches.uninstall()
    model: Any = importlib.import_module(name).Model
    assert model().run() == ["model"]
    patches.install()
    assert model().run() == ["ours", "model"]


def test_calls_may_be_repeated(name: str) -> None:
    patches = _patches(name)
    patches.uninstall()
    patches.install()
    patches.install()
    model: Any = importlib.import_module(name).Model
    patches.install()
    assert model().run() == ["ours", "model"]
    patches.uninstall()
    patches.uninstall()
    assert model().run() == ["model"]


def test_what_somebody_has_patched_over_stays_and_is_taken_up_again(name: str) -> None:
    model: Any = importlib.import_module(name).Model
    original, patches = vars(model)["run"], _patches(name)
    patches.install()
    ours = vars(model)["run"]
    model.run = _around(ours, "theirs")
    patches.uninstall()
    assert (patches.active, model().run()) == (False, ["theirs", "ours", "model"])
    patches.install()
    assert (patches.active, model().run()) == (True, ["theirs", "ours", "model"])
    model.run = ours
    patches.uninstall()
    assert vars(model)["run"] is original


def test_two_adapters_on_one_method_do_not_know_each_other(name: str) -> None:
    first, second = _patches(name, "first"), _patches(name, "second")
    first.install()
    second.install()
    model: Any = importlib.import_module(name).Model
    assert model().run() == ["second", "first", "model"]
    second.uninstall()
    first.uninstall()
    assert model().run() == ["model"]


def test_a_method_that_is_refused_or_missing_is_left_alone(name: str) -> None:
    model: Any = importlib.import_module(name).Model
    patches = Patches((), lambda module: None)
    patches.replace(model, "run", lambda before: None)
    with pytest.raises(KeyError):
        patches.replace(model, "stop", lambda before: before)
    assert model().run() == ["model"]


def test_an_error_while_patching_stays_out_of_the_import(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patch(module: ModuleType) -> None:
        raise RuntimeError("not understood")

    monkeypatch.setattr("mcptrace.guard._Switch.next_log_seconds", 0.0)
    reraise_in_tests(False)
    Patches((name,), patch).install()
    with caplog.at_level(logging.WARNING, logger="mcptrace"):
        model: Any = importlib.import_module(name).Model
    assert model().run() == ["model"]
    assert caplog.messages == [
        f"mcptrace: error in patching of {name}, ignored: RuntimeError: not understood"
    ]


def test_threads_that_install_at_once_and_import_at_once_patch_once(name: str) -> None:
    patches = _patches(name)
    _at_once(patches.install)
    _at_once(lambda: importlib.import_module(name))
    _at_once(patches.install)
    model: Any = importlib.import_module(name).Model
    assert model().run() == ["ours", "model"]
    _at_once(patches.uninstall)
    assert model().run() == ["model"]


def _at_once(call: Callable[[], object]) -> None:
    start = threading.Barrier(8)

    def work() -> None:
        start.wait(30)
        call()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_a_tracer_is_there_while_installed_and_of_our_own_provider_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Program, "provider", None)
    patches = Patches((), lambda module: None)
    with captured_spans() as capture:
        assert patches.tracer("scope") is None
        patches.install()
        assert patches.tracer("scope") is None
        monkeypatch.setattr(_Program, "provider", capture.provider)
        assert patches.tracer("scope") is capture.provider.get_tracer("scope", mcptrace.__version__)
        patches.install(NoOpTracerProvider())
        assert patches.tracer("scope") is None
        patches.install(capture.provider)
        assert isinstance(patches.tracer("scope"), mcptrace.Tracer)
        patches.uninstall()
        assert patches.tracer("scope") is None
