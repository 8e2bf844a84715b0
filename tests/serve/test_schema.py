"""The OpenAPI schema holds: whatever schemathesis asks, the service answers as the schema says, and never fails."""

from __future__ import annotations

from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import EASY, make_offer

from saccade.serve.app import make_app
from saccade.serve.config import ServeConfig

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 5  # of requests to each endpoint


def test_every_answer_is_one_of_the_schema(shelf: Path) -> None:
    app = make_app(make_offer(shelf), ServeConfig("0.0.0.0", limits=EASY))
    api = schemathesis.openapi.from_asgi("/openapi.json", app)
    asked: list[str] = []
    for found in api.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        ask()
        asked.append(operation.label)
    assert {"GET /search", "POST /search", "GET /explain", "POST /copies", "POST /caption", "GET /metrics"} <= {*asked}
