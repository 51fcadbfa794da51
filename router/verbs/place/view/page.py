"""A placement as one HTML file: words, pictures, tables. It needs no network and no script, and can be read
in the dark."""

from collections.abc import Iterator
from html import escape

from router.verbs.place.view import changes, tables, words
from router.verbs.place.view.pictures import reading, svg_devices, svg_figures
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.tables import COLUMNS, HEADS, DeviceRow
from router.verbs.report import html

_STYLE = """
svg { width: 100%; height: auto; min-width: 680px; max-width: 1080px; }
p.refused { color: var(--bad); font-weight: 600; }
tr.missed td { color: var(--bad); font-weight: 600; }
tr.first td { border-top: 1px solid var(--faint); }
table.names th, table.names td { text-align: left; }
table.names .figure, table.figures th + th, table.figures td + td { text-align: right; }
th { white-space: pre; vertical-align: bottom; }
ol li { margin: .15em 0; }
a { color: inherit; }
"""
_TERMS = (
    ("device, slice, replica", "a processor or a GPU; a share of it that computes a batch at a time; a "
     "model that is loaded on a slice."),
    ("batch", "rows (inputs of a model) that are computed together: larger ones use the device better, and "
     "take longer. A request that just missed one waits for it, and then for its own, so both have to fit "
     "into the promise."),
    ("reserve", "what a plan is sized for beyond the rates that are asked: rates are never quite known, and "
     "requests do not come evenly."),
    ("bound", "what every plan that carries all of this costs at least: what it would cost if devices and "
     "replicas could be had in parts (linear programming). The gap is by how much the plan is dearer, "
     "relative to it; there may be none that is cheaper."),
    ("predicted", "the placement is simulated: the gateway's own scheduler in virtual time, with requests "
     "that come at random at the rates asked (without the reserve), on the latencies that were measured. It "
     "knows nothing of the network or of clients."),
    ("in turns", "models that share a slice: a batch of each, one after the other, as none of them needs a "
     "slice of its own."),
    ("domains", "devices that fail together (a host, a rack) are a failure domain. A model with replicas in "
     "two is still served when one fails."),
    ("taken", "a plan replaces what is there only where it saves more within the horizon than starting its "
     "replicas costs, or where what is there does not carry what is asked any more."),
    ("steps", "make before break: at each moment every model has at least the capacity that it has before or "
     "after, whichever is less."),
)  # fmt: skip


def page(shown: PlaceReport) -> str:
    """Return the whole file."""
    parts = [
        *html.opening("Penstock: placement", _STYLE),
        "<h1>Which devices carry what is asked?</h1>",
        f'<p class="see">{html.text(words.sentence(shown))}</p>',
        *(f'<p class="refused">{html.text(each)}</p>' for each in shown.refused),
        '<p class="small">New to this? <a href="#reading">How to read it</a> is below the figures.</p>',
        "<h2>Devices</h2>",
        f'<div class="wide">{svg_devices(shown)}</div>',
        f'<p class="small">{html.text(reading(shown))}</p>',
        *_devices(shown),
        "<h2>Models</h2>",
        f'<div class="wide">{svg_figures(shown)}</div>',
        *_models(shown),
        "<h2>What changes</h2>",
        *(f"<p>{html.text(each)}</p>" for each in changes.changed(shown)),
        *_steps(shown),
        "<h2>What it was decided from</h2>",
        *html.terms(shown.premises),
        *(f'<p class="small">{html.text(note)}.</p>' for note in shown.notes),
        '<h2 id="reading">How to read it</h2>',
        *html.terms(_TERMS),
        "<h2>The columns</h2>",
        *html.terms([*HEADS, *((tables.flat(each.title), each.meaning) for each in COLUMNS)]),
        "<footer><p>Made by penstock place: a decision on paper, which changes no device.</p></footer>"
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _devices(shown: PlaceReport) -> Iterator[str]:
    found, left = tables.device_rows(shown, tables.LAYOUTS)
    if found:
        yield '<div class="wide"><table class="names"><thead><tr>'
        for title, meaning in HEADS:
            yield f'<th{_figure(title)} title="{escape(meaning)}">{escape(title)}</th>'
        yield "</tr></thead><tbody>"
        for rows in found:
            for count, row in enumerate(rows):
                yield from _device(row, first=count == 0)
        yield "</tbody></table></div>"
    told = [*tables.named(found), left, tables.free_devices(shown)]
    yield from (f'<p class="small">{html.text(each)}</p>' for each in told if each)


def _device(row: DeviceRow, first: bool) -> Iterator[str]:
    begins = ' class="first"' if first else ""
    yield f"<tr{begins}><td><b>{escape(row.devices)}</b></td>"
    for (title, _), cell in list(zip(HEADS, row.cells, strict=True))[1:]:
        yield f"<td{_figure(title)}>{html.text(cell)}</td>"
    yield "</tr>"


def _figure(title: str) -> str:
    return ' class="figure"' if title in tables.FIGURES else ""


def _models(shown: PlaceReport) -> Iterator[str]:
    found, left = tables.model_rows(shown, tables.MODELS)
    if found:
        yield '<div class="wide"><table class="figures"><thead><tr><th>model</th>'
        yield from (f'<th title="{escape(each.meaning)}">{escape(each.title)}</th>' for each in COLUMNS)
        yield "</tr></thead><tbody>"
        for model in found:
            missed = "" if tables.met(shown, model) else ' class="missed"'
            yield f"<tr{missed}><td><b>{escape(model.model)}</b></td>"
            yield from (f"<td>{html.text(each.cell(model))}</td>" for each in COLUMNS)
            yield "</tr>"
        yield "</tbody></table></div>"
    if left:
        yield f'<p class="small">{html.text(left)}</p>'


def _steps(shown: PlaceReport) -> Iterator[str]:
    if shown.steps:
        yield "<p>The steps from here to there; what stands in one line is done at once.</p>"
        told, left = changes.stages(shown, tables.STAGES)
        yield "<ol>"
        yield from (f"<li>{html.text(each)}</li>" for each in told)
        yield "</ol>"
        if left:
            yield f"<p>{html.text(left)}</p>"
