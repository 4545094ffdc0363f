"""Receivers: take a request off the network, hand it on, and only then say yes.

    bytes ─▶ admission ─▶ inflate ─▶ Intake.consume ─▶ answer
             (in flight)  (bounded)   (admit, journal)

The intake belongs to the service; ``admit`` is here because it is what a receiver's yes is
about, and is called again for what is read back from the journal.
"""

from .admission import ByteBudget, Reservation
from .admit import admit, admit_json
from .inflate import Inflater
from .otlp_grpc import OtlpGrpcReceiver
from .otlp_http import OtlpHttpReceiver

__all__ = [
    "ByteBudget",
    "Inflater",
    "OtlpGrpcReceiver",
    "OtlpHttpReceiver",
    "Reservation",
    "admit",
    "admit_json",
]
