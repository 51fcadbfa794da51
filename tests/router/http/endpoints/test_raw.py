"""Bodies that are content: a picture or a sound is one value, and a form has values by the inputs' names."""

import struct

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.dialects.raw import form_rows
from router.tensors.parts.errors import RequestError
from serving.values.specs import Limits
from tests.router.http.endpoints.worlds import TextServing

PICTURE = b"\xff\xd8\xff\xe0\x00\r\n--no boundary\r\n\x00\n\r\xd9"
Files = list[tuple[str, tuple[str | None, bytes]]]


async def send(
    client: httpx.AsyncClient, content_type: str, content: bytes, model: str = "letters"
) -> httpx.Response:
    headers = {"content-type": content_type}
    return await client.post(f"/v1/models/{model}:predict", content=content, headers=headers)


def elements(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


@pytest.mark.parametrize("content_type", ["image/jpeg", "audio/wav; rate=16000", "application/octet-stream"])
async def test_a_body_of_content_is_one_value(
    client: httpx.AsyncClient, serving: TextServing, content_type: str
) -> None:
    assert (await send(client, content_type, b"the cat")).status_code == 200
    assert elements(bytes(serving.calls[-1].inputs[0].data)) == [b"the cat"]
    assert serving.calls[-1].rows == 1


async def test_parts_of_one_name_are_rows(client: httpx.AsyncClient, serving: TextServing) -> None:
    files: Files = [("TEXT", ("a.txt", b"the cat")), ("TEXT", ("b.txt", b"a dog"))]
    answer = await client.post("/v1/models/letters:predict", files=files)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["predictions"]) == 2
    assert elements(bytes(serving.calls[-1].inputs[0].data)) == [b"the cat", b"a dog"]


async def test_fields_of_a_form_are_json_or_texts(client: httpx.AsyncClient) -> None:
    fields: Files = [("INPUT0", (None, str([1] * 16).encode())), ("INPUT1", (None, str([2] * 16).encode()))]
    answer = await client.post("/v1/models/simple:predict", files=fields)
    assert answer.json()["predictions"] == [{"OUTPUT0": [3] * 16, "OUTPUT1": [-1] * 16}]
    text = await client.post("/v1/models/letters:predict", files=[("TEXT", (None, b"the cat"))])
    assert text.status_code == 200


async def test_content_for_an_input_of_numbers_is_refused(client: httpx.AsyncClient) -> None:
    answer = await send(client, "image/png", PICTURE, "pixels")
    assert answer.status_code == 400
    assert "input 'X'" in answer.json()["error"]


async def test_an_unknown_name_in_a_form_names_the_inputs(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/models/letters:predict", files=[("file", ("a.jpg", PICTURE))])
    assert answer.status_code == 400
    assert "'file'" in answer.json()["error"]
    assert "TEXT" in answer.json()["error"]


def form(*parts: tuple[str, bytes]) -> bytes:
    lines = b"".join(
        b'--xyz\r\ncontent-disposition: form-data; name="%b"; filename="f"\r\n\r\n%b\r\n'
        % (name.encode(), data)
        for name, data in parts
    )
    return lines + b"--xyz--\r\n"


@given(st.lists(st.binary(max_size=200).filter(lambda each: b"--xyz" not in each), min_size=1, max_size=4))
def test_files_come_out_byte_by_byte_as_they_went_in(files: list[bytes]) -> None:
    rows = form_rows(form(*(("X", each) for each in files)), Limits())
    assert rows == [{"X": each} for each in files]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "its first line is no boundary"),
        (b"nonsense\r\n", "its first line is no boundary"),
        (form(("X", b"1"))[:-4], "it ends before its last boundary"),
        (
            form(("X", b"1"), ("X", b"2"), ("Y", b"3")),
            "the form has 2 of 'X', 1 of 'Y'; expected one of each",
        ),
        (form(("", b"1")), "a part of the form has no name"),
        (form(*[("X", b"1")] * 3), "the form has more than 2 parts named 'X'"),
    ],
)
def test_what_is_no_form_says_so(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        form_rows(body, Limits(rows_per_request=2))
    assert message in caught.value.message


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_are_refused(body: bytes) -> None:
    for content in (body, b"--b\r\n" + body, form(("X", body))):
        try:
            rows = form_rows(content, Limits())
        except RequestError:
            continue
        assert all(isinstance(each, dict) for each in rows)
