"""A tenant's rate is played: what is over it is refused, and the others are answered as before."""

import json
from pathlib import Path

from tests.router.verbs.simulate.conftest import GATEWAY, Simulate


def test_what_is_over_a_tenants_rate_is_refused(simulate: Simulate, home: Path) -> None:
    limits = "tenants: [{name: shop, rate: {requests_per_s: 20}}]\n"
    (home / "limited.yaml").write_text(GATEWAY + limits)
    ended = simulate("--rate", "shop/digits=100,minilm=5", "--json", "--seconds", "10", config="limited.yaml")
    assert ended.exit_code == 0, ended.output
    printed = json.loads(ended.stdout)
    (result,) = printed["results"]
    digits, minilm = result["models"]["digits"], result["models"]["minilm"]
    assert 0.7 < digits["endings"]["rate_limited"] / digits["requests"] < 0.85
    assert not minilm["endings"].get("rate_limited")
