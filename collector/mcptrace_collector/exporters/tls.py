"""TLS towards a destination, for the two clients.

Raises ConfigError naming the file; called once, when an exporter starts.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from mcptrace_collector.config import TlsClientConfig
from mcptrace_collector.errors import ConfigError


def http_context(tls: TlsClientConfig | None) -> ssl.SSLContext:
    """A client context that checks certificates and names; None is the system's trust."""
    ca_file = tls.ca_file if tls is not None else None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"the CA file {ca_file!r} cannot be used: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls is not None and tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except OSError as error:
            raise ConfigError(
                f"the client certificate {tls.cert_file!r} with the key {tls.key_file!r} "
                f"cannot be used: {error}"
            ) from error
    return context


def grpc_credentials(tls: TlsClientConfig | None) -> grpc.ChannelCredentials:
    """The same for grpcio, which takes bytes and says little about what is wrong with them."""
    if tls is None:
        return grpc.ssl_channel_credentials()
    http_context(tls)  # checks that the files belong together
    ca, key, cert = (
        Path(name).read_bytes() if name is not None else None
        for name in (tls.ca_file, tls.key_file, tls.cert_file)
    )
    return grpc.ssl_channel_credentials(ca, key, cert)
