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


def test_fc_15_results_beyond_grpcs_default_and_beyond_the_limit(stage):
    """6 and 10 MiB arrive, 80 MiB is beyond the limit; who calls the same agent meanwhile notices nothing."""
    stage.start_control_plane()
    stage.start_agent(queue__main_in_flight="4", limits__result_bytes_max="64MiB")
    client, other = stage.client(), stage.client()
    for size in (6291456, 10485760, 83886080):
        call = client.start_call("big", {"bytes": size}, timeout=50)
        slowest = 0.0
        while not call.done():
            answer = other.call("echo", {"text": "beside"}, timeout=20)
            assert answer.text == "beside"
            slowest = max(slowest, answer.seconds)
        answer = call.result()
        if size < 64 << 20:
            expected = hashlib.sha256(pattern(size).encode()).hexdigest()
            assert hashlib.sha256(answer.text.encode()).hexdigest() == expected
        else:
            assert answer.error, "80 MiB are beyond the limit"
            assert str(64 << 20) in answer.text and "8388" in answer.text, answer.text
        print(f"{size} bytes: the slowest call beside took {slowest * 1000:.0f} ms")
        assert slowest < 1.0
    assert stage.agent.output().count("link_up") == 1
