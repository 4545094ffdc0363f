"""The PyTorch adapter on real PyTorch and Transformers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mcptrace_pytorch
from mcptrace.testing import Capture, captured_spans
from mcptrace_proto import schema

# The frameworks' own deprecations are not ours to answer for.
pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def torch(framework: Callable[..., Any]) -> Any:
    return framework("torch", "TORCH")


@pytest.fixture
def capture() -> Iterator[Capture]:
    with captured_spans() as captured:
        mcptrace_pytorch.install(captured.provider)
        yield captured
        mcptrace_pytorch.uninstall()


@pytest.fixture(scope="module")
def ranker(torch: Any) -> Any:
    """A small model of a class of its own, in evaluation mode."""

    class Ranker(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
            )

        def forward(self, rows: Any, fail: Any = None) -> Any:
            if fail is not None:
                fail()
            return torch.softmax(self.layers(rows), dim=-1)

    torch.manual_seed(7)
    return Ranker().eval()


def _violations(span: Any) -> list[str]:
    return schema.validate(span, schema.read_inference(span.attributes))


def test_one_forward_is_one_inference_however_deep_the_model(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    with torch.no_grad():
        ranker(torch.ones(4, 8))
    (span,) = capture.spans
    assert (span.name, span.kind, span.status_code) == ("forward Ranker", 1, 0)
    latency = span.attributes.pop("mcptrace.inference_latency_ms")
    assert 0 < latency < 5_000
    assert span.attributes == {
        "mcptrace.protocol_version": "v2.3",
        "mcptrace.model_name": "Ranker",
        "mcptrace.operation": "forward",
        "mcptrace.provider": "pytorch",
        "mcptrace.streaming": False,
        "mcptrace.token_usage.unknown.input": "not_applicable",
        "mcptrace.token_usage.unknown.output": "not_applicable",
        "mcptrace.token_usage.unknown.total": "not_applicable",
        "mcptrace.pytorch.module": span.attributes["mcptrace.pytorch.module"],
        "mcptrace.pytorch.device": "cpu",
        "mcptrace.pytorch.dtype": "float32",
        "mcptrace.pytorch.input_shape": [4, 8],
        "mcptrace.pytorch.batch_size": 4,
        "gen_ai.request.model": "Ranker",
        "gen_ai.operation.name": "forward",
        "gen_ai.provider.name": "pytorch",
        "mcptrace.sampling.adjusted_count": 1.0,
        "mcptrace.sampling.reason": "probability",
    }


def test_a_forward_is_a_valid_inference_span(torch: Any, ranker: Any, capture: Capture) -> None:
    with torch.inference_mode():
        ranker(torch.ones(1, 8))
    assert [_violations(span) for span in capture.spans] == [[]]


def test_results_are_the_same_bits(torch: Any, ranker: Any) -> None:
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        before = ranker(rows)
        with captured_spans() as captured:
            mcptrace_pytorch.install(captured.provider)
            during = ranker(rows)
            mcptrace_pytorch.uninstall()
        after = ranker(rows)
    assert len(captured.spans) == 1
    assert torch.equal(before, during)
    assert torch.equal(before, after)


def test_training_and_gradients_are_not_traced(torch: Any, ranker: Any, capture: Capture) -> None:
    ranker(torch.ones(1, 8)).sum().backward()
    ranker.train()
    with torch.no_grad():
        ranker(torch.ones(1, 8))
    ranker.eval()
    assert capture.spans == []


def test_arithmetic_without_weights_is_no_inference(torch: Any, capture: Capture) -> None:
    with torch.no_grad():
        torch.nn.Softmax(dim=-1).eval()(torch.ones(2, 2))
        torch.nn.MSELoss().eval()(torch.ones(2), torch.ones(2))
    assert capture.spans == []


def test_an_exception_is_recorded_and_goes_on(torch: Any, ranker: Any, capture: Capture) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="mat1 and mat2"):
        ranker(torch.ones(1, 5))
    (span,) = capture.spans
    assert span.status_code == 2
    assert span.attributes["error.type"] == "RuntimeError"
    assert span.attributes["mcptrace.finish_reason"] == "error"
    assert [event.name for event in span.events] == ["exception"]


def test_running_out_of_memory_is_recorded_and_goes_on(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="allocate memory"):
        ranker(torch.ones(1, 8), lambda: torch.empty(1 << 58, dtype=torch.uint8))
    (span,) = capture.spans
    assert (span.status_code, span.attributes["error.type"]) == (2, "RuntimeError")
    assert "allocate memory" in span.status_message


def test_the_next_inference_after_a_failure_is_traced(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            ranker(torch.ones(1, 5))
        ranker(torch.ones(1, 8))
    assert [span.status_code for span in capture.spans] == [2, 0]


def test_a_forward_is_a_child_of_the_current_span(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    with capture.tracer.start_as_current_span("handler"), torch.no_grad():
        ranker(torch.ones(1, 8))
    forward, handler = capture.spans
    assert forward.parent_span_id == handler.span_id


def test_within_an_inference_a_forward_is_a_step_and_no_second_one(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    with capture.tracer.start_inference("ranker", "rank"), torch.no_grad():
        ranker(torch.ones(1, 8))
    assert [span.name for span in capture.spans] == ["rank ranker"]


def test_a_compiled_model_is_one_graph_with_the_name_of_the_model(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    rows = torch.ones(2, 8)
    torch._dynamo.reset()
    with torch.no_grad():
        expected = ranker(rows)
        compiled = torch.compile(ranker, backend=backend, fullgraph=True)
        for _ in range(3):
            assert torch.equal(compiled(rows), expected)
    assert len(graphs) == 1
    assert [span.name for span in capture.spans] == ["forward Ranker"] * 4


def test_scripted_and_traced_models_run_and_are_traced(
    torch: Any, ranker: Any, capture: Capture
) -> None:
    rows = torch.ones(2, 8)
    with torch.no_grad():
        expected = ranker.layers(rows)
        traced = torch.jit.trace(ranker.layers, (rows,))
        capture.exporter.clear()
        assert torch.equal(traced(rows), expected)
        scripted = torch.jit.script(ranker.layers)
        assert torch.equal(scripted(rows), expected)
        assert torch.equal(torch.jit.freeze(scripted)(rows), expected)
    assert [span.name for span in capture.spans] == ["forward Sequential"] * 3


def test_installing_twice_makes_one_span_and_uninstalling_puts_everything_back(
    torch: Any, ranker: Any
) -> None:
    original = torch.nn.Module.__call__
    with captured_spans() as captured:
        mcptrace_pytorch.install(captured.provider)
        mcptrace_pytorch.install(captured.provider)
        with torch.no_grad():
            ranker(torch.ones(1, 8))
        mcptrace_pytorch.uninstall()
        mcptrace_pytorch.uninstall()
        assert torch.nn.Module.__call__ is original
        with torch.no_grad():
            ranker(torch.ones(1, 8))
    assert len(captured.spans) == 1


def test_without_a_tracer_of_ours_a_model_runs_untraced(torch: Any, ranker: Any) -> None:
    mcptrace_pytorch.install()
    try:
        with torch.no_grad():
            assert ranker(torch.ones(1, 8)).shape == (1, 2)
    finally:
        mcptrace_pytorch.uninstall()


@pytest.fixture(scope="module")
def language_model(framework: Callable[..., Any], torch: Any) -> Any:
    """A random two-layer Llama that knows 32 tokens."""
    transformers = framework("transformers", "TORCH")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.config.name_or_path = "tests/tiny-llama"
    return model


def test_generate_is_one_inference_with_its_tokens(
    torch: Any, language_model: Any, capture: Capture
) -> None:
    prompt = torch.tensor([[0, 5, 6, 7], [3, 4, 5, 6]])
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    result = language_model.generate(
        prompt, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None
    )
    assert result.shape == (2, 9)
    (span,) = capture.spans
    view = schema.read_inference(span.attributes)
    assert span.name == "text_completion tests/tiny-llama"
    assert _violations(span) == []
    assert (view.token_usage.input, view.token_usage.output, view.token_usage.total) == (7, 10, 17)
    assert view.finish_reason == "length"


def test_generate_gives_the_same_tokens_and_counts_none_of_the_padding(
    torch: Any, language_model: Any
) -> None:
    prompt = torch.tensor([[3, 5, 6, 7]])
    plain = language_model.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=None)
    end = int(plain[0, 6])  # what it says third becomes the end
    stop = plain[0, 4:].tolist().index(end) + 1
    with captured_spans() as captured:
        mcptrace_pytorch.install(captured.provider)
        result = language_model.generate(
            input_ids=prompt, max_new_tokens=8, do_sample=False, eos_token_id=end, pad_token_id=end
        )
        mcptrace_pytorch.uninstall()
    (span,) = captured.spans
    view = schema.read_inference(span.attributes)
    assert torch.equal(result, plain[:, : 4 + stop])
    assert (view.token_usage.input, view.token_usage.output) == (4, stop)
    assert view.finish_reason == "stop"


def test_a_program_under_mcptrace_run_needs_no_change(
    torch: Any, receiver: Any, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()\n"
        "with torch.inference_mode():\n"
        "    print(tuple(model(torch.ones(3, 4)).shape))\n"
    )
    options = ["--service-name", "ranker", "--endpoint", receiver.http_endpoint]
    done = subprocess.run(
        [sys.executable, "-m", "mcptrace.run", *options, "--sampler", "always_on", str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
    )
    assert done.stdout == "(3, 4)\n", done.stderr
    ((resource, scope, span),) = receiver.spans()
    service = {each.key: each.value.string_value for each in resource.attributes}["service.name"]
    assert (service, scope.name, span.name) == ("ranker", "mcptrace_pytorch", "forward Sequential")


def test_installing_does_not_import_torch() -> None:
    code = (
        "import sys, mcptrace_pytorch; mcptrace_pytorch.install();"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False False\n"


def test_our_own_part_warns_of_nothing(torch: Any, ranker: Any, capture: Capture) -> None:
    with warnings.catch_warnings(record=True) as warned, torch.no_grad():
        warnings.simplefilter("always")
        ranker(torch.ones(1, 8))
    assert warned == []
