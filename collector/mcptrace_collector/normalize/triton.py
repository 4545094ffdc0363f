"""What only a whole trace of Triton says: time in the queue, and time to the first response.

Triton spreads one inference over three spans:

    InferRequest ── HTTP_RECV_* … INFER_RESPONSE_COMPLETE, HTTP_SEND_* / GRPC_SEND_*
    └─ <model>   ── REQUEST_START, QUEUE_START, REQUEST_END        the inference span
       └─ compute ─ COMPUTE_START … COMPUTE_END                    absent on a cache hit or reject

Pure and total.  Errors are not looked for: Triton marks none, and a missing event has several
causes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcptrace_collector.normalize.sources import event_times, interval_ms
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto.model import SpanData
from mcptrace_proto.schema import InferenceSpan

MODEL_NAME = "triton.model_name"
COMPUTE = "compute"
REQUEST = "InferRequest"
# One response makes one of each of these; more than one is a stream.
RESPONSE_EVENTS = ("INFER_RESPONSE_COMPLETE", "GRPC_SEND_START")


def complete(records: Sequence[SpanRecord]) -> list[SpanRecord]:
    """Fill what is missing in the views of a trace's model spans; returns those changed."""
    models = [
        record
        for record in records
        if record.inference is not None and MODEL_NAME in record.data.attributes
    ]
    if not models:
        return []
    spans = [record.data for record in records]
    computes = {span.parent_span_id: span for span in spans if span.name == COMPUTE}
    requests = {span.span_id: span for span in spans if span.name == REQUEST}
    changed: list[SpanRecord] = []
    for record in models:
        view = record.inference
        if view is None:
            continue
        compute = computes.get(record.data.span_id)
        request = requests.get(record.data.parent_span_id)
        queued = compute is not None and _fill_queue(view, record.data, compute)
        streamed = request is not None and _fill_stream(view, request)
        if queued or streamed:
            changed.append(record)
    return changed


def _fill_queue(view: InferenceSpan, model: SpanData, compute: SpanData) -> bool:
    if view.queue_ms is not None:
        return False
    start = next(event_times(model, "QUEUE_START"), None)
    view.queue_ms = interval_ms(start, next(event_times(compute, "COMPUTE_START"), None))
    return view.queue_ms is not None


def _fill_stream(view: InferenceSpan, request: SpanData) -> bool:
    """The first response of several, counted from the arrival of the request."""
    times = [list(event_times(request, name)) for name in RESPONSE_EVENTS]
    if view.ttft_ms is not None or all(len(moments) < 2 for moments in times):
        return False
    first = min(moment for moments in times for moment in moments)
    view.ttft_ms = interval_ms(request.start_time_unix_nano, first)
    if view.streaming is None:
        view.streaming = True
    return True
