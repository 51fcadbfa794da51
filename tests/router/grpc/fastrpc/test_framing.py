"""What gRPC adds to HTTP/2, as bytes."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.grpc.fastrpc.framing import inference_fields, metadata_of, prefix, status, timeout_s, trailers


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"3S", 3.0),
        (b"250m", 0.25),
        (b"99999999u", 99.999999),
        (b"0n", 0.0),
        (None, None),
        (b"", None),
        (b"S", None),
        (b"5", None),
        (b"-1S", None),
        (b"1.5S", None),
        (b"123456789m", None),
        (b"\xb2m", None),
    ],
)
def test_a_timeout_has_at_most_eight_digits_and_a_unit(stated: bytes | None, seconds: float | None) -> None:
    assert timeout_s(stated) == (None if seconds is None else pytest.approx(seconds))


def test_a_prefix_says_plain_and_the_length() -> None:
    assert prefix(0x01020304) == b"\0\1\2\3\4"


@given(st.text())
def test_a_sentence_is_written_as_grpc_writes_it_and_loses_nothing(sentence: str) -> None:
    fields = dict(status(grpc.StatusCode.INTERNAL, sentence))
    assert fields[b"grpc-status"] == b"13"
    written = fields.get(b"grpc-message", b"")
    assert all(0x20 <= each <= 0x7E for each in written)
    read, at = bytearray(), 0
    while at < len(written):
        escaped = written[at : at + 1] == b"%"
        read += bytes.fromhex(written[at + 1 : at + 3].decode()) if escaped else written[at : at + 1]
        at += 3 if escaped else 1
    assert read.decode() == sentence


def test_trailers_keep_times_out_of_the_clients_table() -> None:
    found = trailers(b"\r\nserver-timing: infer;dur=1.000\r\nx-penstock-variant: a: b")
    assert [tuple(each) for each in found] == [
        (b"grpc-status", b"0"),
        (b"server-timing", b"infer;dur=1.000"),
        (b"x-penstock-variant", b"a: b"),
    ]
    assert [type(each).__name__ for each in found] == ["tuple", "NeverIndexedHeader", "tuple"]


def test_metadata_leaves_out_what_is_grpcs_own() -> None:
    headers = (
        (b":path", b"/a"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        (b"grpc-timeout", b"1S"), (b"x-a", "é".encode()), (b"x-b", b"\xff"), (b"x-bin", b"AAE"),
        (b"y-bin", b"*"),
    )  # fmt: skip
    assert metadata_of(headers) == (("x-a", "é"), ("x-b", "ÿ"), ("x-bin", b"\0\1"), ("y-bin", b"*"))


def test_inference_reads_its_own_fields_and_lists_those_that_are_repeated() -> None:
    headers = (
        (b"x-other", b"1"),
        (b"x-tenant", b"a"),
        (b"x-tenant", b"b"),
        (b"x-tier", b"c"),
        (b"x-tier", b"d"),
    )
    assert inference_fields(headers) == {"x-tenant": "b", "x-tier": "c,d"}
