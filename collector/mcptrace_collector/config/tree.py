"""The configuration tree: every setting of the collector, with its default and its meaning.

Values only.  How they are read is in read.py and load.py, how they fit together in check.py.
A default that depends on another setting (a path below ``data_dir``) is filled in when the
tree is built, so that readers of a CollectorConfig never see an empty path.
"""

# setting() is dataclasses.field() with facts; it makes no shared value.
# ruff: noqa: RUF009

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .setting import setting

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class TlsServerConfig:
    """How a receiver proves who it is, and whom it lets in."""

    cert_file: str = setting(doc="PEM certificate chain of the receiver.", file=True)
    key_file: str = setting(doc="PEM private key that belongs to `cert_file`.", file=True)
    client_ca_file: str | None = setting(
        None,
        doc="PEM certificates that client certificates must be signed by. With it, a client "
        "without a valid certificate is turned away; without it clients are not asked.",
        file=True,
    )


@dataclass(frozen=True, slots=True)
class ReceiverConfig:
    """A door for OTLP requests."""

    enabled: bool = setting(True, doc="Whether the receiver listens at all.")
    endpoint: str = setting(
        "127.0.0.1:4317",
        doc="Address to listen on, `host:port`. Port 0 takes any free port.",
    )
    max_request_bytes: int = setting(
        64 * MIB,
        doc="Largest request, counted after decompression. Larger ones are refused for good "
        "(413, RESOURCE_EXHAUSTED).",
        unit="bytes",
        minimum=1 * KIB,
        maximum=1 * GIB,
    )
    request_timeout_seconds: float = setting(
        30.0,
        doc="Longest time in which a client must have sent its request.",
        unit="seconds",
        minimum=0.1,
        maximum=3600,
    )
    tls: TlsServerConfig | None = setting(None, doc="TLS for this receiver; off when absent.")
    insecure: bool = setting(
        False,
        doc="Says on purpose that this receiver may listen beyond loopback without `tls`.",
    )


@dataclass(frozen=True, slots=True)
class ReceiversConfig:
    """Where spans come in."""

    otlp_grpc: ReceiverConfig = setting(
        factory=lambda: ReceiverConfig(endpoint="127.0.0.1:4317"), doc="OTLP over gRPC."
    )
    otlp_http: ReceiverConfig = setting(
        factory=lambda: ReceiverConfig(endpoint="127.0.0.1:4318"),
        doc="OTLP over HTTP at `/v1/traces`, protobuf and JSON.",
    )


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The door for operators: `/healthz`, `/readyz`, `/metrics`, `/status`."""

    enabled: bool = setting(True, doc="Whether the admin server listens at all.")
    endpoint: str = setting(
        "127.0.0.1:13133",
        doc="Address to listen on, `host:port`. It answers everybody who can reach it, "
        "without TLS and without asking who they are.",
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds on what the collector holds, in memory and on disk."""

    in_flight_bytes: int = setting(
        256 * MIB,
        doc="Bytes of requests being received at one time, all receivers together. Beyond it "
        "clients are told to try later.",
        unit="bytes",
        minimum=1 * MIB,
    )
    journal_bytes_max: int = setting(
        4 * GIB,
        doc="Bytes of accepted requests whose traces are not decided yet. Beyond it clients "
        "are told to try later.",
        unit="bytes",
        minimum=1 * MIB,
    )
    queue_bytes_max: int = setting(
        4 * GIB,
        doc="Bytes waiting for each destination. What happens beyond it is `queue_full`.",
        unit="bytes",
        minimum=1 * MIB,
    )
    queue_full: Literal["block"] = setting(
        "block",
        doc="What a full queue does. `block`: no trace is settled until there is room, the "
        "journal fills, and clients are told to try later; nothing accepted is lost.",
    )
    disk_reserve_bytes: int = setting(
        64 * MIB,
        doc="Free space below `data_dir` under which no new request is accepted, so that the "
        "accepted ones can still be finished.",
        unit="bytes",
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class SchemaConfig:
    """MCP-Trace v2.3 on inference spans (docs/schema.md)."""

    enforcement: Literal["strict", "warn", "off"] = setting(
        "warn",
        doc="`strict`: an inference span that violates the schema is dropped and counted. "
        "`warn`: it is forwarded with `mcptrace.schema.violations`. `off`: not looked at.",
    )


@dataclass(frozen=True, slots=True)
class NormalizeConfig:
    """What the normaliser cannot know from the spans themselves."""

    vllm_model: str | None = setting(
        None,
        doc="Model name for spans of vLLM, which do not carry one. Without it they are taken "
        "from the resource where it names the model, and else violate the schema.",
    )
    model_aliases: Mapping[str, str] = setting(
        factory=dict,
        doc="Names under which models are sent, and the name each is to be known by.",
    )


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Which traces are kept.  Errors, timeouts and spans over the latency quantile always are."""

    enabled: bool = setting(True, doc="`false` keeps every trace.")
    target_traces_per_second: float = setting(
        10.0,
        doc="Kept traces per second that each model and operation is steered to, "
        "within `rate_min` and `rate_max`.",
        unit="traces/second",
        minimum=0.001,
    )
    rate_min: float = setting(
        0.001,
        doc="Share of ordinary traces that is kept however many there are.",
        minimum=1e-6,
        maximum=1.0,
    )
    rate_max: float = setting(
        0.1,
        doc="Share of ordinary traces that is kept however few there are.",
        minimum=1e-6,
        maximum=1.0,
    )
    decision_wait_seconds: float = setting(
        10.0,
        doc="Time after the first span of a trace at which it is decided, complete or not.",
        unit="seconds",
        minimum=0.0,
        maximum=3600,
    )
    settle_seconds: float = setting(
        1.0,
        doc="Time after the arrival of the root span at which its trace is decided.",
        unit="seconds",
        minimum=0.0,
        maximum=3600,
    )
    timeout_limit_ms: float | None = setting(
        None,
        doc="Latency from which an inference counts as timed out, beside those that say so "
        "themselves. Without it only those.",
        unit="ms",
        minimum=0.001,
    )
    latency_quantile: float = setting(
        0.99,
        doc="Quantile of a model's recent latencies above which a span is always kept.",
        minimum=0.5,
        maximum=0.9999,
    )
    latency_warmup_spans: int = setting(
        500,
        doc="Spans of a model to be seen before its latency quantile is trusted.",
        unit="spans",
        minimum=1,
    )
    table_bytes_max: int = setting(
        256 * MIB,
        doc="Bytes of spans that wait for a decision. Beyond it the oldest traces are decided "
        "early.",
        unit="bytes",
        minimum=1 * MIB,
    )
    decisions_remembered: int = setting(
        100_000,
        doc="Verdicts remembered for spans that arrive after their trace was decided.",
        unit="traces",
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The tamper-evident log of decisions (`mcptrace audit verify`)."""

    enabled: bool = setting(True, doc="Whether decisions are written to the log.")
    directory: str = setting("", doc="Directory of the log. Default: `audit` below `data_dir`.")
    segment_records: int = setting(
        65_536, doc="Records in one file of the log.", unit="records", minimum=1
    )


@dataclass(frozen=True, slots=True)
class TlsClientConfig:
    """How a destination is checked, and how the collector proves itself to it."""

    ca_file: str | None = setting(
        None, doc="PEM certificates to trust. Default: those of the system.", file=True
    )
    cert_file: str | None = setting(None, doc="PEM client certificate.", file=True)
    key_file: str | None = setting(None, doc="PEM private key of `cert_file`.", file=True)
    server_name: str | None = setting(
        None, doc="Name expected in the destination's certificate, if not that of `endpoint`."
    )


@dataclass(frozen=True, slots=True)
class ExporterConfig:
    """One destination, with its own queue."""

    type: Literal["otlp_grpc", "otlp_http", "json_lines"] = setting(
        doc="`otlp_grpc`, `otlp_http` (protobuf), or `json_lines` (a local file, one OTLP/JSON "
        "request per line)."
    )
    endpoint: str = setting(
        "",
        doc="Where to send. `otlp_http`: a URL, `/v1/traces` is added when it has no path. "
        "`otlp_grpc`: `host:port` or a URL without path.",
    )
    path: str = setting("", doc="`json_lines`: the file to append to.")
    headers: Mapping[str, str] = setting(
        factory=dict,
        doc="Headers (gRPC: metadata) sent with every request. Take secrets from "
        "`${env:NAME}` or `${file:/path}`.",
        secret=True,
    )
    compression: Literal["gzip", "none"] = setting("gzip", doc="Compression of requests.")
    timeout_seconds: float = setting(
        10.0, doc="Time for one attempt.", unit="seconds", minimum=0.1, maximum=3600
    )
    insecure: bool = setting(
        False,
        doc="Says on purpose that spans may leave for another machine without TLS. For "
        "`otlp_grpc` without a scheme it also chooses plain text.",
    )
    tls: TlsClientConfig | None = setting(None, doc="TLS towards the destination.")
    batch_spans_max: int = setting(
        2000, doc="Spans in one request.", unit="spans", minimum=1, maximum=1_000_000
    )
    batch_bytes_max: int = setting(
        3 * MIB,
        doc="Bytes in one request before compression; many receivers refuse more than 4 MiB.",
        unit="bytes",
        minimum=1 * KIB,
        maximum=64 * MIB,
    )
    retry_initial_seconds: float = setting(
        1.0, doc="First wait after a failed attempt.", unit="seconds", minimum=0.01, maximum=3600
    )
    retry_max_seconds: float = setting(
        30.0,
        doc="Longest wait between attempts.",
        unit="seconds",
        minimum=0.01,
        maximum=DAY_SECONDS,
    )
    retry_elapsed_max_seconds: float = setting(
        0.0,
        doc="Time after which a request is given up and its spans are counted as failed. "
        "0 never gives up.",
        unit="seconds",
        minimum=0.0,
    )
    in_flight_max: int = setting(
        4, doc="Requests under way at one time.", unit="requests", minimum=1, maximum=256
    )
    rotate_bytes: int = setting(
        256 * MIB,
        doc="`json_lines`: size at which the file is set aside and a new one begun.",
        unit="bytes",
        minimum=1 * KIB,
    )
    rotate_keep: int = setting(
        4,
        doc="`json_lines`: files set aside that are kept.",
        unit="files",
        minimum=0,
        maximum=10_000,
    )

    @property
    def plaintext(self) -> bool:
        """True when spans travel without TLS: the scheme says so, or else ``insecure`` does."""
        scheme, found, _ = self.endpoint.partition("://")
        return scheme == "http" if found else self.insecure


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """Everything that can be set."""

    data_dir: str = setting(
        "./mcptrace-data",
        doc="Directory of the journal, the queues, and by default the audit log and the span "
        "file. One collector at a time may use it.",
    )
    durability: Literal["disk", "memory"] = setting(
        "disk",
        doc="What a receiver's yes means. `disk`: the request is on disk and survives a crash. "
        "`memory`: faster, and a crash loses what was not forwarded yet.",
    )
    shutdown_timeout_seconds: float = setting(
        10.0,
        doc="Time for deciding and forwarding what is left when the collector is told to stop. "
        "What remains after it stays on disk.",
        unit="seconds",
        minimum=0.0,
        maximum=3600,
    )
    receivers: ReceiversConfig = setting(factory=ReceiversConfig, doc="Where spans come in.")
    admin: AdminConfig = setting(factory=AdminConfig, doc="The door for operators.")
    limits: LimitsConfig = setting(factory=LimitsConfig, doc="Bounds on what is held.")
    schema: SchemaConfig = setting(factory=SchemaConfig, doc="The MCP-Trace schema.")
    normalize: NormalizeConfig = setting(factory=NormalizeConfig, doc="Help for the normaliser.")
    sampling: SamplingConfig = setting(factory=SamplingConfig, doc="Which traces are kept.")
    audit: AuditConfig = setting(factory=AuditConfig, doc="The log of decisions.")
    exporters: Mapping[str, ExporterConfig] = setting(
        factory=dict,
        doc="Destinations by name; every kept span goes to each of them. Default: one named "
        "`file`, of type `json_lines`, writing `spans.jsonl` below `data_dir`. Naming any "
        "replaces it.",
    )

    def __post_init__(self) -> None:
        data_dir = Path(self.data_dir)
        if not self.audit.directory:
            audit = dataclasses.replace(self.audit, directory=str(data_dir / "audit"))
            object.__setattr__(self, "audit", audit)
        if not self.exporters:
            spans = ExporterConfig(type="json_lines", path=str(data_dir / "spans.jsonl"))
            object.__setattr__(self, "exporters", {"file": spans})
