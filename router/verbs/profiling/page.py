"""Profiles as one HTML file: words, tables, pictures. It needs no network and no script, and can be read in
the dark."""

from collections.abc import Iterator, Sequence
from html import escape

from router.verbs.profiling import tables, words
from router.verbs.profiling.figures import ShareScaling
from router.verbs.profiling.pictures import READING, svg
from router.verbs.profiling.tables import CARRIES, COSTS, KNEE, ProfileColumn
from router.verbs.report import html

_STYLE = """
h3 { font-size: 1em; margin: 1.6em 0 .2em; }
svg { width: 100%; height: auto; min-width: 680px; max-width: 1080px; }
tr.knee td { font-weight: 600; color: var(--good); }
a { color: inherit; }
th { white-space: pre; vertical-align: bottom; }
"""
_TERMS = (
    ("row, batch", "a row is one input of the model, as one picture or one text. Rows that are computed "
     "together are a batch: larger ones use the device better, and take longer."),
    ("share", "how much of a device the model has: so many cores of a processor, or a part of a GPU."),
    ("throughput", "rows a second of a share that computes one batch after the other."),
    ("p50, p99", "of 100 runs of a batch, 50 took at most the p50 (the median), 99 at most the p99."),
    ("within", "a promise of so many milliseconds must hold two batches: a request that just missed one "
     "waits for it, and then for its own. So a batch may take half of it: the dashed red line. What the "
     "network and the gateway add is not in it."),
    ("knee", "the share past which more of the device buys little: of the shares with at least 80 % of the "
     "largest throughput, the one with the highest throughput over latency and share. The star."),
    ("lines", "what is measured is noisy, so a curve is fitted through the dots that says what must be so: "
     "more rows never take less time, more share never takes more. The tables have the fit's figures."),
    ("bars", "in the pictures of latency, from the p50 up to the p99. In those of throughput, as much up and "
     "down as the machine swayed while it was measured (noise): what differs by less may be chance."),
    ("predicted", "hollow dots: not measured, but estimated from other profiles. Their bars are the standard "
     "error: in two of three cases the truth is within."),
    ("dotted line", "where throughput would be if it grew as the share does. The further below it, the more "
     "of the larger share is wasted."),
)  # fmt: skip


def page(model: str, found: Sequence[ShareScaling], slo_us: int, problems: Sequence[str]) -> str:
    """Return the whole file. `found`: not empty; `problems`: profile files that were passed over, and why."""
    kinds = list(dict.fromkeys(each.device_kind for each in found))
    parts = [
        *html.opening(f"Penstock: profiles of {model}", _STYLE),
        f"<h1>{escape(model)}: what does a larger share buy, and how large may a batch be?</h1>",
        '<p class="small">New to this? <a href="#reading">How to read it</a> is below the figures.</p>',
    ]
    for kind in kinds:
        own = [each for each in found if each.device_kind == kind]
        parts += _kind(kind, own, slo_us)
    parts += ['<h2 id="reading">How to read it</h2>', *html.terms(_TERMS)]
    shown = tables.known((*CARRIES, *COSTS), found)
    parts += ["<h2>The columns</h2>", *html.terms((_flat(each.title), each.meaning) for each in shown)]
    if problems:
        parts += ["<h2>Passed over</h2><ul>", *(f"<li>{html.text(each)}</li>" for each in problems), "</ul>"]
    parts.append(
        "<footer><p>Made by penstock profile --show, of the model's compute alone: nothing of the network or "
        "of what waits.</p></footer></body></html>"
    )
    return "\n".join(parts) + "\n"


def _kind(kind: str, found: Sequence[ShareScaling], slo_us: int) -> Iterator[str]:
    """Yield a device kind: what to see, the figures, the pictures, where they come from."""
    yield f"<h2>On {escape(kind)}</h2>"
    yield from (f'<p class="see">{html.text(words.sentence(each, slo_us))}</p>' for each in found)
    yield from _table(found, CARRIES, marked=True)
    yield from (f"<p>{html.text(note)}</p>" for note in words.notes(found))
    for scaling in found:
        yield f"<h3>{escape(words.name(scaling))} in pictures</h3>"
        yield f'<div class="wide">{svg(scaling, slo_us)}</div>'
    yield f'<p class="small">{html.text(READING)}</p>'
    yield "<h3>What it costs, and how well it is known</h3>"
    yield from _table(found, COSTS, marked=False)
    yield "<h3>How it was measured</h3>"
    yield from html.terms(words.origins(found))


def _table(found: Sequence[ShareScaling], columns: Sequence[ProfileColumn], marked: bool) -> Iterator[str]:
    shown = tables.known(columns, found)
    yield '<div class="wide"><table><thead><tr><th>variant</th><th>share</th>'
    yield from (f'<th title="{escape(each.meaning)}">{escape(each.title)}</th>' for each in shown)
    yield "<th></th></tr></thead><tbody>"
    for scaling in found:
        for count, (share, cells, knee) in enumerate(tables.rows(scaling, shown)):
            name = "" if count else escape(words.name(scaling))
            mark = ' class="knee"' if knee and marked else ""
            yield f"<tr{mark}><td><b>{name}</b></td><td>{html.text(share)}</td>"
            yield from (f"<td>{html.text(cell)}</td>" for cell in cells)
            yield f"<td>{KNEE if knee and marked else ''}</td></tr>"
    yield "</tbody></table></div>"


def _flat(title: str) -> str:
    """Return a column's title in one line."""
    return title.replace("-\n", "").replace("\n", " ")
