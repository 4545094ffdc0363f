"""TLS for the two servers, from the same three PEM files.

Raises ConfigError naming the file; called once, before anything listens.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from mcptrace_collector.config import TlsServerConfig
from mcptrace_collector.errors import ConfigError


def http_context(tls: TlsServerConfig) -> ssl.SSLContext:
    """TLS 1.2 or later; with ``client_ca_file`` every client must prove itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"the certificate {tls.cert_file!r} with the key {tls.key_file!r} cannot be used: "
            f"{error}"
        ) from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except OSError as error:
            raise ConfigError(
                f"the client CA file {tls.client_ca_file!r} cannot be used: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def grpc_credentials(tls: TlsServerConfig) -> grpc.ServerCredentials:
    """The same for grpcio, which takes bytes and says little about what is wrong with them."""
    http_context(tls)  # checks that the files belong together
    client_ca = Path(tls.client_ca_file).read_bytes() if tls.client_ca_file is not None else None
    pair = (Path(tls.key_file).read_bytes(), Path(tls.cert_file).read_bytes())
    return grpc.ssl_server_credentials([pair], client_ca, client_ca is not None)
