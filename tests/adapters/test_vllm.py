"""The vLLM adapter on real vLLM, generating on the CPU with a tiny random model."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mcptrace_pytorch
import mcptrace_vllm
from mcptrace.testing import Capture, captured_spans
from mcptrace_proto import schema

# The frameworks' own deprecations are not ours to answer for.
pytestmark = [
    pytest.mark.needs_vllm,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]

BLOCK_TOKENS = 128  # of the prefix cache on a CPU
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


def _write_model(directory: Path) -> None:
    """A random two-layer Llama over bytes, as Hugging Face saves it."""
    import tokenizers
    import torch
    import transformers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(alphabet) + 2,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(directory)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that the attention kernels of the CPU know
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(directory)


@pytest.fixture(scope="module")
def vllm(framework: Callable[..., Any]) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        settings = {
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        yield framework("vllm", "VLLM")


@pytest.fixture(scope="module")
def llm(vllm: Any, tmp_path_factory: Any) -> Any:
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    _write_model(directory)
    return vllm.LLM(
        model=str(directory),
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=256,
        disable_log_stats=False,  # else vLLM measures nothing
    )


@pytest.fixture
def capture() -> Iterator[Capture]:
    with captured_spans() as captured:
        mcptrace_vllm.install(captured.provider)
        yield captured
        mcptrace_vllm.uninstall()


def _greedy(vllm: Any, tokens: int, **more: Any) -> Any:
    return vllm.SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, **more)


def test_each_prompt_is_one_valid_inference_under_the_call(
    vllm: Any, llm: Any, capture: Capture
) -> None:
    began = time.time_ns()
    outputs = llm.generate(["hello", "hello world"], _greedy(vllm, 6), use_tqdm=False)
    ended = time.time_ns()
    assert [len(output.outputs[0].token_ids) for output in outputs] == [6, 6]
    *requests, call = capture.spans
    assert (call.name, call.attributes["mcptrace.vllm.requests"]) == ("LLM.generate", 2)
    assert not schema.is_inference(call.attributes)
    views = [schema.read_inference(span.attributes) for span in requests]
    for span, view, output in zip(requests, views, outputs, strict=True):
        assert (span.name, span.kind) == ("text_completion tiny-llama", 1)
        assert span.parent_span_id == call.span_id
        assert schema.validate(span, view) == []
        assert (view.model_name, view.provider) == ("tiny-llama", "vllm")
        assert (view.operation, view.finish_reason) == ("text_completion", "length")
        assert view.request_id == output.request_id
        assert view.ttft_ms is not None
        assert view.inference_latency_ms is not None
        assert view.queue_ms is not None
        assert 0 <= view.queue_ms <= view.ttft_ms < view.inference_latency_ms < 60_000
        assert began - 10**9 < span.start_time_unix_nano < span.end_time_unix_nano
        assert span.end_time_unix_nano < ended + 10**9
    counts = [(view.token_usage.input, view.token_usage.output) for view in views]
    assert counts == [(5, 6), (11, 6)]


def test_a_chat_is_an_inference(vllm: Any, llm: Any, capture: Capture) -> None:
    messages = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(messages, _greedy(vllm, 3), use_tqdm=False)
    request, call = capture.spans
    view = schema.read_inference(request.attributes)
    assert (request.name, call.name) == ("chat tiny-llama", "LLM.chat")
    assert (view.token_usage.input, view.token_usage.output) == (len(output.prompt_token_ids), 3)


def test_tokens_from_the_prefix_cache_are_counted(vllm: Any, llm: Any, capture: Capture) -> None:
    prompt = "the same long beginning " * 8
    for _ in range(2):
        llm.generate([prompt], _greedy(vllm, 1), use_tqdm=False)
    first, _, second, _ = capture.spans
    usage = [schema.read_inference(span.attributes).token_usage for span in (first, second)]
    assert [(each.input, each.cached) for each in usage] == [
        (len(prompt), 0),
        (len(prompt), BLOCK_TOKENS),
    ]


def test_several_sequences_of_one_prompt_are_one_inference(
    vllm: Any, llm: Any, capture: Capture
) -> None:
    sampling = vllm.SamplingParams(n=3, max_tokens=4, temperature=1, seed=1, ignore_eos=True)
    llm.generate(["hello"], sampling, use_tqdm=False)
    request, _ = capture.spans
    usage = schema.read_inference(request.attributes).token_usage
    assert request.attributes["mcptrace.vllm.sequences"] == 3
    assert (usage.input, usage.output) == (5, 12)


def test_a_refused_prompt_is_a_failed_inference_and_goes_on(
    vllm: Any, llm: Any, capture: Capture
) -> None:
    with pytest.raises(Exception, match="maximum context length") as raised:
        llm.generate(["hello", "x" * 400], _greedy(vllm, 1), use_tqdm=False)
    request, call = capture.spans
    view = schema.read_inference(request.attributes)
    assert (request.status_code, call.status_code) == (2, 2)
    assert request.attributes["error.type"].endswith(type(raised.value).__name__)
    assert view.finish_reason == "error"
    assert view.token_usage.unknown["output"] == "aborted"
    assert schema.validate(request, view) == []
    assert len(llm.generate(["hello"], _greedy(vllm, 1), use_tqdm=False)) == 1


def test_the_tokens_are_the_same_as_without_the_adapter(vllm: Any, llm: Any) -> None:
    def generate() -> list[list[int]]:
        outputs = llm.generate(["one", "two"], _greedy(vllm, 8), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    before = generate()
    with captured_spans() as captured:
        mcptrace_vllm.install(captured.provider)
        mcptrace_vllm.install(captured.provider)
        during = generate()
        mcptrace_vllm.uninstall()
        after = generate()
    assert before == during == after
    assert [span.name for span in captured.spans] == [
        "text_completion tiny-llama",
        "text_completion tiny-llama",
        "LLM.generate",
    ]


def test_the_engines_own_steps_are_no_inferences_to_the_pytorch_adapter(
    vllm: Any, llm: Any, capture: Capture
) -> None:
    mcptrace_pytorch.install(capture.provider)
    try:
        llm.generate(["hello"], _greedy(vllm, 4), use_tqdm=False)
    finally:
        mcptrace_pytorch.uninstall()
    assert [span.name for span in capture.spans] == ["text_completion tiny-llama", "LLM.generate"]


def test_installing_does_not_import_vllm() -> None:
    code = (
        "import sys, mcptrace_vllm; mcptrace_vllm.install();"
        "print('vllm' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False False\n"
