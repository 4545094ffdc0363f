"""Who is speaking: the Resource that goes with every span of this process.

service.instance.id and process.pid are made anew after a fork, because they name a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mcptrace.attributes import clean_attributes
from mcptrace_proto.model import Attributes, Resource

VERSION = "0.1.0"


def process_attributes() -> Attributes:
    """What differs between a process and its fork."""
    digits = os.urandom(16).hex()
    instance = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return {"service.instance.id": instance, "process.pid": os.getpid()}


def build_resource(service_name: str, given: Mapping[str, str]) -> Resource:
    """Detected attributes, overlaid with the ``given`` ones, under the service's name."""
    import socket  # only when a provider is built, never when the package is imported

    attributes: Attributes = {
        "telemetry.sdk.name": "mcptrace",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": VERSION,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": "{}.{}.{}".format(*sys.version_info[:3]),
        "host.name": socket.gethostname(),
    }
    attributes.update(process_attributes())
    # Cleaned here, or one value that the wire cannot carry would cost every span.
    attributes.update(clean_attributes(given, sys.maxsize, None)[0])
    attributes["service.name"] = service_name
    return Resource(attributes=attributes)


def after_fork(resource: Resource, given: Mapping[str, str]) -> Resource:
    """The resource of the child of a fork; what the user ``given`` stays."""
    fresh = {name: value for name, value in process_attributes().items() if name not in given}
    return Resource(attributes={**resource.attributes, **fresh})
