"""The colours of reports, in the light and in the dark: variables of a page, and classes of its pictures."""

from collections.abc import Iterator

COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#212427", "#dfe3e6"),
    "paper": ("#ffffff", "#16191c"),
    "line": ("#dddddd", "#3a4046"),
    "faint": ("#666a6e", "#9aa1a7"),
    "good": ("#1d6a4f", "#6cc5a0"),
    "bad": ("#b8351f", "#ef8f7c"),
    "mark": ("#2a7f62", "#4bb38d"),
    "middle": ("#3b5b92", "#8fb0ea"),
    "knee": ("#c97f16", "#f0b03f"),
    # shares, from little of a device to much
    "share0": ("#85b8d9", "#4a7394"),
    "share1": ("#5496c9", "#4f86b5"),
    "share2": ("#3474b0", "#5b9bd0"),
    "share3": ("#245590", "#8fc3ec"),
    "share4": ("#16346b", "#d4e9fb"),
    # sizes of rows
    "size0": ("#2a7f63", "#55b892"),
    "size1": ("#8a5a9e", "#c79bd8"),
    "size2": ("#a5673b", "#dba06f"),
    "size3": ("#47798c", "#86bfd4"),
    "size4": ("#7d7a2b", "#c6c26a"),
    # variants, the most accurate first
    "variant0": ("#2a7f62", "#3f9d7c"),
    "variant1": ("#8fbf7f", "#a6d48f"),
    "variant2": ("#e0b64b", "#e8c45e"),
    "variant3": ("#d98244", "#e39a62"),
    "variant4": ("#a8503c", "#c9705c"),
    # models: Okabe and Ito's (2008), which the colour-blind can tell apart, made lighter or darker, so that
    # ink can be read on each
    "model0": ("#4a9acb", "#0b3f5c"),
    "model1": ("#efc159", "#7e5c0e"),
    "model2": ("#59c0a4", "#086f55"),
    "model3": ("#dea8c6", "#714962"),
    "model4": ("#e49659", "#92460a"),
    "model5": ("#aadaf4", "#366682"),
    "model6": ("#f5ed84", "#65622a"),
    "model7": ("#bdbdbd", "#58595a"),
}
"""By name: in the light, in the dark."""


def style() -> str:
    """Return the variables of a page (`--ink`) and the classes of its pictures (`f-ink` fills, `s-ink`
    strokes)."""
    used = (f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in COLOURS)
    rules = "\n".join((*used, _HOVER))
    return f":root {{ color-scheme: light dark; {_variables(0)} }}\n{_dark(_variables(1))}\n{rules}\n"


def plain_style() -> str:
    """Return the classes alone, in colours that programs without variables can read: for a picture in a file
    of its own."""
    light, dark = ("".join(_classes(place)) for place in (0, 1))
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{_HOVER}\n"


_HOVER = ".tip{fill-opacity:0}.tip:hover{fill-opacity:.12}"


def _variables(place: int) -> str:
    return " ".join(f"--{name}: {pair[place]};" for name, pair in COLOURS.items())


def _dark(variables: str) -> str:
    return f"@media (prefers-color-scheme: dark) {{ :root {{ {variables} }} }}"


def _classes(place: int) -> Iterator[str]:
    for name, pair in COLOURS.items():
        yield f".f-{name}{{fill:{pair[place]}}}.s-{name}{{stroke:{pair[place]}}}"
