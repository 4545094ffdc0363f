# One word each.  Nothing to install first but Python 3.10 or newer; every target sets itself up.
#
#   setup   the development environment in .venv        test    the tests of the default run
#   demo    the whole line on this machine              lint    format, lint, import rules
#   bench   the benchmarks                              types   mypy, strict
#   fmt     format and fix                              docs    regenerate docs/{config,metrics}.md
#   check   lint, types, test                           test-wheel, test-node, test-torch,
#                                                       test-triton, test-vllm: as .ci/run has them
PY ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
GROUPS := torch triton vllm
UPPER_torch := TORCH
UPPER_triton := TRITON
UPPER_vllm := VLLM
INSTALL_vllm := --no-deps
HEAVY := needs_node or needs_torch or needs_triton or needs_vllm

.PHONY: setup demo test lint types bench fmt check docs test-wheel test-node $(GROUPS:%=test-%)

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PY) -c 'import sys; sys.exit("mcptrace needs Python 3.10 or newer; set PY=" if sys.version_info < (3, 10) else 0)'
	$(PY) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q --group dev -e '.[collector,grpc]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -q -m 'not ($(HEAVY))'

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	@for script in bench/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/python docs/generate.py

check: lint types test

# The wheel as users get it, away from the sources: first bare, then with the collector.
test-wheel: $(STAMP)
	rm -rf build/wheel .venv-wheel
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir build/wheel .
	$(PY) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install -q build/wheel/*.whl
	.venv-wheel/bin/python -I tests/wheel_smoke.py bare
	.venv-wheel/bin/python -m pip install -q "$$(echo build/wheel/*.whl)[collector]"
	.venv-wheel/bin/python -I tests/wheel_smoke.py collector

# A part that is missing fails these; in the default run its tests are not selected at all.
test-node: $(STAMP) tests/node/node_modules/.stamp
	MCPTRACE_REQUIRE_NODE=1 $(BIN)/python -m pytest -q -m needs_node

tests/node/node_modules/.stamp: tests/node/package-lock.json
	npm ci --silent --prefix tests/node
	@touch $@

# The adapters against the real frameworks, each in an environment of its own.
$(GROUPS:%=test-%): test-%: .venv-%/.stamp
	MCPTRACE_REQUIRE_$(UPPER_$*)=1 .venv-$*/bin/python -m pytest -q -m needs_$* tests/adapters

.venv-%/.stamp: pyproject.toml tests/requirements/%.txt
	$(PY) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install -q --upgrade 'pip>=25.1'
	.venv-$*/bin/python -m pip install -q $(INSTALL_$*) -r tests/requirements/$*.txt
	.venv-$*/bin/python -m pip install -q --group test -e '.[collector,grpc]'
	@touch $@
