"""What `penstock profile --show` prints of generated profiles."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from router.verbs.profiling.show import ShowOptions, show
from tests.goldens.conftest import Golden
from tests.router.verbs.profiling import generated
from tests.router.verbs.profiling.generated import CPU, GPU

ALL = ShowOptions(None, None, 25_000, None, None)


def test_profile(golden: Golden, tmp_path: Path) -> None:
    store = generated.store(tmp_path / "profiles")

    def shown(name: str, asked: ShowOptions) -> str:
        printed = StringIO()
        show(generated.model(name), store, asked, Console(width=120, file=printed))
        return printed.getvalue()

    golden(
        "profile",
        {
            "all kinds of devices": shown("digits", ALL),
            "sizes": shown("minilm", replace(ALL, slo_us=250_000)),
            "one kind and variant": shown("digits", replace(ALL, variant="cnn", device_kind=CPU)),
            "not on this kind": shown("digits", replace(ALL, variant="linear", device_kind=GPU)),
            "never measured": shown("simple", ALL),
        },
    )
