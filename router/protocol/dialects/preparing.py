"""A question as the input tensors of its model."""

from collections.abc import Sequence

from router.protocol.dialects.arrays import from_batches, from_rows
from router.protocol.dialects.question import Prepared, Question, Row
from router.protocol.dialects.texts import measure
from router.tensors.parts.elements import pack_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.wording import listed
from router.tensors.request.check import ClaimedInput, arrange, check_size
from serving.values.applications import EMBED, RERANK
from serving.values.specs import Limits, ServedModel, TensorSpec


def prepare(question: Question, model: ServedModel, limits: Limits) -> Prepared:
    """Return the tensors, in the order of the spec, and how many tokens the texts have. RequestError for what
    the model cannot answer as it is asked."""
    application = model.spec.application
    if not (question.texts or question.ids):
        return Prepared(_values(question, model, limits))
    if application is None or not _takes_texts(model):
        name = model.name
        raise bad_input(f"model '{name}' takes no texts: send the values of {listed(_names(model))}")
    _check_dimensions(question, model)
    _check_rows(question, limits)
    texts, tokens = measure(question, application)
    if application.task == RERANK:
        if not question.pairs:
            raise bad_input(f"model '{model.name}' takes pairs of texts: ask /rerank or /score")
        sides = [[texts[pair[side]] for pair in question.pairs] for side in (0, 1)]
        columns = dict(zip(application.inputs, sides, strict=True))
    else:
        columns = {application.inputs[0]: list(texts)}
    return Prepared(_pack_texts(columns, model, limits), tokens)


def _values(question: Question, model: ServedModel, limits: Limits) -> Sequence[Row]:
    content = question.content
    if question.form.get("rows") is False:
        return from_batches(content, model, limits)
    rows = content if isinstance(content, list) else [content]
    if "rows" not in question.form and not isinstance(rows[0], list):  # the values of a single row
        rows = [rows]
    return from_rows(rows, model, limits)


def _pack_texts(columns: dict[str, list[str]], model: ServedModel, limits: Limits) -> Sequence[Row]:
    """Return a BYTES tensor of each input, one text a row."""
    claims = [
        ClaimedInput(spec.name, "BYTES", _shape(spec, len(columns[spec.name]))) for spec in model.spec.inputs
    ]
    arrange(model, claims, limits)
    tensors: list[Row] = []
    for claim in claims:
        data = pack_elements(claim.name, "BYTES", claim.shape, columns[claim.name], booleans=False)
        check_size(claim, len(data), limits)
        tensors.append((claim.name, "BYTES", claim.shape, data))
    return tensors


def _shape(spec: TensorSpec, rows: int) -> tuple[int, ...]:
    return (rows, *(1 for _ in spec.shape[1:]))


def _takes_texts(model: ServedModel) -> bool:
    return all(tensor.datatype == "BYTES" for tensor in model.spec.inputs)


def _names(model: ServedModel) -> list[str]:
    return [tensor.name for tensor in model.spec.inputs]


def _check_rows(question: Question, limits: Limits) -> None:
    """Refuse too many texts before their tokens are counted; `arrange` refuses them in its own words."""
    rows = max(len(question.texts), len(question.ids))
    if rows > limits.rows_per_request + 1:  # a query counts for no row
        most = f"at most {limits.rows_per_request} rows are accepted (limits.rows_per_request)"
        raise too_large(f"the request has {rows} texts; {most}")


def _check_dimensions(question: Question, model: ServedModel) -> None:
    """Refuse a length of embedding that the model was not trained for: its beginning would mean little."""
    wanted = question.form.get("dimensions")
    application = model.spec.application
    if not isinstance(wanted, int) or not wanted or application is None or application.task != EMBED:
        return
    output = next(each for each in model.spec.outputs if each.name == application.output)
    whole = output.shape[-1]
    lengths = [*application.dimensions, *([whole] if whole > 0 else [])]
    if wanted not in lengths:
        known = " or ".join(map(str, lengths)) if lengths else "none: leave it out"
        raise bad_input(f"'dimensions' of the request is {wanted}; model '{model.name}' has {known}")
