"""Who is speaking."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mcptrace.resource import VERSION, after_fork, build_resource


def test_the_resource_names_service_sdk_and_process() -> None:
    attributes = build_resource("chat", {"deployment.environment.name": "test"}).attributes
    instance = str(attributes.pop("service.instance.id"))
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", instance)
    assert attributes.pop("process.pid") == os.getpid()
    assert attributes.pop("host.name")
    assert str(attributes.pop("process.runtime.version")).startswith("3.")
    assert attributes.pop("process.runtime.name")
    assert attributes == {
        "deployment.environment.name": "test",
        "service.name": "chat",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "mcptrace",
        "telemetry.sdk.version": VERSION,
    }


def test_the_service_name_wins_over_the_attribute() -> None:
    assert build_resource("chat", {"service.name": "x"}).attributes["service.name"] == "chat"


def test_a_value_that_the_wire_cannot_carry_becomes_text_and_a_bad_key_goes() -> None:
    given: Any = {"n": 1 << 70, "path": Path("/x"), 5: "no key"}
    attributes = build_resource("chat", given).attributes
    assert (attributes["n"], attributes["path"], 5 in attributes) == (str(1 << 70), "/x", False)


def test_a_fork_gets_an_instance_of_its_own_unless_the_user_named_one() -> None:
    given = {"service.instance.id": "mine"}
    named = build_resource("chat", given)
    assert after_fork(named, given).attributes == named.attributes
    unnamed = build_resource("chat", {})
    fresh = after_fork(unnamed, {}).attributes
    assert fresh["service.instance.id"] != unnamed.attributes["service.instance.id"]
