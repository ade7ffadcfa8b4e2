"""Large results: 40 MB arrives byte for byte, 300 MB is refused with both sizes named."""

import hashlib

from counting_server import pattern

MEGABYTE = 1_000_000
CAP = 256 << 20


def test_fc_15_forty_megabytes_pass_byte_for_byte(stage):
    stage.start_control_plane()
    stage.start_agent()
    answer = stage.client().call("big", {"bytes": 40 * MEGABYTE}, timeout=50)
    assert not answer.failed, answer.text[:500]
    assert len(answer.text) == 40 * MEGABYTE
    expected = hashlib.sha256(pattern(40 * MEGABYTE).encode()).hexdigest()
    assert hashlib.sha256(answer.text.encode()).hexdigest() == expected


def test_three_hundred_megabytes_are_refused_with_both_sizes(stage):
    stage.start_control_plane()
    stage.start_agent()
    client = stage.client()
    answer = client.call("big", {"bytes": 300 * MEGABYTE}, timeout=55)
    assert answer.failed
    assert str(CAP) in answer.text or "256 MiB" in answer.text
    # The line around the text adds some bytes, so the size is told by its beginning.
    assert "30000" in answer.text or "286" in answer.text
    # That one call has failed; the seat has not.
    assert client.call("echo", {"text": "still here"}, timeout=20).text == "still here"
