"""Bodies of errors: each family's name for a status, as its clients expect."""

import pytest

from engine.server.errors import ApiError, Family


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (404, "not_found_error", "not_found_error"),
        (413, "invalid_request_error", "request_too_large"),
        (500, "server_error", "api_error"),
        (501, "not_supported_error", "api_error"),
        (503, "unavailable_error", "overloaded_error"),
    ],
)
def test_each_status_has_the_types_of_its_families(
    status: int, openai: str, anthropic: str
) -> None:
    error = ApiError(status, "A sentence.")
    for family in (Family.OPENAI, Family.LLAMA):
        assert error.body(family)["error"]["type"] == openai
    body = error.body(Family.ANTHROPIC)
    assert (body["type"], body["error"]) == ("error", {"type": anthropic, "message": "A sentence."})
    assert error.body(Family.OLLAMA) == {"error": "A sentence."}
