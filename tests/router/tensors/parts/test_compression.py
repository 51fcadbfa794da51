import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tensors.parts.compression import (
    FREE_BYTES,
    MEMBERS_MAX,
    coding_of_message,
    deflate,
    framing,
    inflate,
)
from router.tensors.parts.errors import RequestError
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE
from tests.router.tensors.requests import message, refusal, simple_message

LIMITS = Limits(body_bytes=8 << 20)
MEMBER = gzip.compress(b"")


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=MEMBERS_MAX))
def test_gzip_members_in_a_row_are_one_body(members: list[bytes]) -> None:
    body = b"".join(map(gzip.compress, members))
    assert inflate(body, b"gzip", LIMITS) == b"".join(members)


@given(st.binary(max_size=5000), st.sampled_from([zlib.compress, raw_deflate]))
def test_deflate_is_read_with_and_without_its_frame(body: bytes, pack: object) -> None:
    assert callable(pack)
    assert inflate(pack(body), b" Deflate ", LIMITS) == body


@given(st.binary(max_size=5000), st.sampled_from([b"gzip", b"deflate"]))
def test_what_is_compressed_here_is_read_here(body: bytes, coding: bytes) -> None:
    assert inflate(deflate(body, coding), coding, LIMITS) == body


@given(st.binary(max_size=300), st.sampled_from([b"gzip", b"deflate"]))
def test_damaged_bodies_raise_nothing_but_a_refusal(body: bytes, coding: bytes) -> None:
    with contextlib.suppress(RequestError):
        inflate(body, coding, LIMITS)


@given(st.binary(min_size=1, max_size=300), st.sampled_from([b"gzip", b"deflate"]), st.data())
def test_a_body_that_is_cut_off_ends_too_early(body: bytes, coding: bytes, data: st.DataObject) -> None:
    packed = deflate(body, coding)
    cut = packed[: data.draw(st.integers(2, len(packed) - 1))]
    assert refusal(lambda: inflate(cut, coding, LIMITS), BAD_INPUT).endswith("request body ends too early")


def test_more_members_than_any_writer_makes_are_refused() -> None:
    assert inflate(MEMBER * MEMBERS_MAX, b"gzip", LIMITS) == b""
    sentence = refusal(lambda: inflate(MEMBER * (MEMBERS_MAX + 1), b"gzip", LIMITS), TOO_LARGE)
    assert sentence == "the gzip request body has more than 16 members"


@pytest.mark.parametrize("stream", [b"\x03\x00", zlib.compress(b"")])
def test_deflate_is_one_stream(stream: bytes) -> None:
    sentence = refusal(lambda: inflate(stream * 100, b"deflate", LIMITS), BAD_INPUT)
    assert sentence == f"{99 * len(stream)} bytes follow the end of the deflate request body"


def test_a_megabyte_is_free_and_more_is_bounded_by_the_ratio() -> None:
    zeros = gzip.compress(bytes(FREE_BYTES), 9)
    assert len(inflate(zeros, b"gzip", LIMITS)) == FREE_BYTES
    bomb = gzip.compress(bytes(FREE_BYTES + 1), 9)
    sentence = refusal(lambda: inflate(bomb, b"gzip", LIMITS), TOO_LARGE)
    size = f"over 1048576 bytes once decompressed, 100 times its {len(bomb)}"
    assert sentence == f"the request body is {size} (limits.inflation)"
    generous = Limits(body_bytes=8 << 20, inflation=1032)
    assert len(inflate(bomb, b"gzip", generous)) == FREE_BYTES + 1


def test_a_bomb_of_many_members_is_bounded_together() -> None:
    member = gzip.compress(bytes(600_000), 9)
    assert "once decompressed" in refusal(lambda: inflate(member * 2, b"gzip", LIMITS), TOO_LARGE)


def test_what_inflates_over_the_limit_of_bodies_names_that_limit() -> None:
    body = gzip.compress(bytes(range(256)) * 8000)
    sentence = refusal(lambda: inflate(body, b"gzip", Limits(body_bytes=1 << 20)), TOO_LARGE)
    assert sentence.endswith("over the limit of 1048576 bytes once decompressed (limits.body_mb)")


@pytest.mark.parametrize(
    ("coding", "window"), [(b"", 0), (b"identity", 0), (b" GZIP", 31), (b"deflate", 15), (b"br", None)]
)
def test_codings_have_names(coding: bytes, window: int | None) -> None:
    assert framing(coding) == window


def test_a_compressed_message_is_told_from_a_plain_one() -> None:
    for plain in (simple_message(), message(("X", "BYTES", (1, 1), ["x"]), typed=True, id="x" * 300)):
        wire = plain.SerializeToString()
        assert coding_of_message(wire) == b""
        assert coding_of_message(gzip.compress(wire)) == b"gzip"
        assert [coding_of_message(zlib.compress(wire, level)) for level in (1, 6, 9)] == [b"deflate"] * 3
    assert coding_of_message(b"") == b""
