"""Results as one HTML file: words, a table, pictures. It needs no network and no script."""

from collections.abc import Iterator, Sequence
from html import escape

from router.observing.reasons import ending
from router.verbs.report import html, numbers
from router.verbs.simulate import tables, words
from router.verbs.simulate.pictures import svg
from router.verbs.simulate.runs import Conditions, Result

_STYLE = """
td.met { color: var(--good); font-weight: 600; } td.missed { color: var(--bad); font-weight: 600; }
div.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 1em; }
div.cards svg { width: 100%; height: auto; max-width: 660px; }
"""
_HEADS = {
    "asked/s": "requests that came, a second",
    "in time": "share of the requests that were answered within the promise",
    "goodput/s": "requests answered in time, a second",
    "p50 ms": "half of the answers took at most so many milliseconds",
    "p99 ms": "99 of 100 answers took at most so many milliseconds",
    "SLO ms": "the promise: an answer within so many milliseconds",
    "refused": "share told at once that it cannot be: another try elsewhere costs no time",
    "shed": "share given up while it waited, for it could no longer be answered in time",
    "late": "share answered, but after the promised time",
    "batch rows": "mean number of rows computed together",
    "busy": "share of the slices' time in which they compute",
    "device s/M": "seconds that slices compute for a million requests answered in time",
    "accuracy": "mean accuracy of the rows answered, as measured of the variants that answered them",
    "cost/h": "price of the slices for an hour; a model's part is by how long they compute for it",
    "cost/M": "that price for a million requests answered in time",
}


def page(
    results: Sequence[Result], conditions: Conditions, premises: Sequence[tuple[str, str]], aim: float
) -> str:
    """Return the whole file. `premises`: what was simulated, as terms with their texts; `aim`: the attainment
    that is called met."""
    models = [model.name for model in results[0].case.site.served]
    parts = [
        *html.opening("Penstock: simulated", _STYLE),
        "<h1>What would be answered in time?</h1>",
        f'<p class="see">{html.text(words.sentence(results))}</p>',
        *(f"<p>{html.text(told)}</p>" for each in results if (told := words.capacity_sentence(each, aim))),
        *(f"<p>{html.text(told)}</p>" for told in words.breakdowns(results, conditions)),
        *_table(results, aim),
        *_losses(results),
        *_choices(results),
        *_endings(results),
    ]
    for model in models:
        parts += _pictures(results, model)
    parts += [
        "<h2>What was simulated</h2>",
        *html.terms(premises),
        "<h2>The words of the table</h2>",
        *html.terms((term, _HEADS[term]) for term in tables.columns(results)),
        "<footer><p>Made by penstock simulate: the gateway's own scheduler in virtual time, on the "
        "latencies that were measured of the models. It knows nothing of the network, of clients, or of what "
        "the gateway itself can carry.</p></footer></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(results: Sequence[Result], aim: float) -> Iterator[str]:
    yield '<div class="wide"><table><thead><tr><th>simulated</th><th>model</th>'
    for title in tables.columns(results):
        yield f'<th title="{escape(_HEADS[title])}">{escape(title)}</th>'
    yield "</tr></thead><tbody>"
    for result in results:
        for count, (model, cells) in enumerate(tables.rows(results, result)):
            figures = result.figures.get(model, result.total)
            name = "" if count else escape(result.case.name)
            met = "met" if figures.attainment >= aim else "missed"
            yield f"<tr><td><b>{name}</b></td><td>{escape(model)}</td>"
            for title, cell in zip(tables.columns(results), cells, strict=True):
                mark = f' class="{met}"' if title == "in time" and figures.offered else ""
                yield f"<td{mark}>{escape(cell)}</td>"
            yield "</tr>"
    yield "</tbody></table></div>"
    yield f'<p class="small">Green: at least {aim * 100:.4g} % answered in time.</p>'


def _losses(results: Sequence[Result]) -> Iterator[str]:
    told = [f"<li>{html.text(f'{who}: {what}')}</li>" for who, what in words.losses(results)]
    if told:
        yield "<h2>What became of lost slices</h2><ul>"
        yield from told
        yield "</ul>"


def _choices(results: Sequence[Result]) -> Iterator[str]:
    told = [f"<li>{html.text(f'{who}: {what}')}</li>" for who, what in words.choices(results)]
    if told:
        yield "<h2>Which variants answered</h2><ul>"
        yield from told
        yield "</ul>"


def _endings(results: Sequence[Result]) -> Iterator[str]:
    told = [
        f"<li>{escape(result.case.name)}, {escape(model)}: "
        + "; ".join(
            html.text(f"{numbers.percent(count / figures.offered)} {ending(name)}")
            for name, count in words.bad_endings(figures)
        )
        + "</li>"
        for result in results
        for model, figures in result.figures.items()
        if words.bad_endings(figures)
    ]
    if told:
        yield "<h2>What became of the others</h2><ul>"
        yield from told
        yield "</ul>"


def _pictures(results: Sequence[Result], model: str) -> Iterator[str]:
    yield f"<h2>{escape(model)}, second by second</h2>"
    yield (
        "<p>Above the dashed line the promise is broken. Where the green area reaches the black line, all "
        "that was asked was answered in time. The pictures show the first "
        "run, all on the same axes.</p>"
    )
    yield '<div class="cards">'
    for result in results:
        yield svg(results, result, model)
    yield "</div>"
