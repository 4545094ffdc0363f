"""A small inference service over HTTP: a tiny transformer that streams tokens.

    POST /v1/generate  {"model": "tiny-chat", "prompt": "...", "max_tokens": 8, "timeout_ms": 500}

Answers one token a line.  It asks `opentelemetry` for nothing and configures nothing: run it
under `mcptrace-run`, and each request becomes one MCP-Trace inference span.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.propagate import extract
from tiny_transformer import TinyTransformer

import mcptrace

PYTORCH = importlib.util.find_spec("torch") is not None
"""Compute with PyTorch where it is installed, else with NumPy."""


def model(name: str, seed: int) -> Any:
    if PYTORCH:
        from torch_transformer import TorchTransformer

        return TorchTransformer(name, seed)
    return TinyTransformer(name, seed)


MODELS = {name: model(name, seed) for seed, name in enumerate(("tiny-chat", "tiny-code"))}


class PoisonedPrompt(ValueError):
    """A prompt this service cannot take, as every service has some."""


def tokens(model: Any, prompt: bytes, max_tokens: int, deadline: float) -> Iterator[int]:
    """The model's tokens, within the time the client allows."""
    if b"\x00" in prompt:
        raise PoisonedPrompt("the prompt has a NUL byte")
    for token in model.generate(prompt, max_tokens):
        if time.monotonic() > deadline:
            raise TimeoutError("the client's time is up")
        yield token


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = MODELS[request["model"]]
        prompt = request["prompt"].encode()
        deadline = time.monotonic() + request.get("timeout_ms", 10_000) / 1000
        span = mcptrace.get_tracer("demo").start_inference(
            model=model.name,
            operation="chat",
            provider="pytorch" if PYTORCH else "numpy",
            streaming=True,
            context=extract(dict(self.headers)),
        )
        produced = 0
        try:
            with span:
                self._begin()
                for token in tokens(model, prompt, request.get("max_tokens", 8), deadline):
                    if produced == 0:
                        span.record_first_token()
                    produced += 1
                    self._chunk(b"%d\n" % token)
                span.record_tokens(input=len(prompt), output=produced)
                span.finish("stop")
        except (PoisonedPrompt, TimeoutError) as failure:
            self._chunk(b"error: %s\n" % str(failure).encode())
        self._chunk(b"")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a line a request would be most of the work."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--port", type=int, default=8000)
    server = Server(("127.0.0.1", arguments.parse_args().port), Handler)
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start()
    )
    print(f"{'PyTorch' if PYTORCH else 'NumPy'}, listening on {server.server_port}", flush=True)
    server.serve_forever(poll_interval=0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
