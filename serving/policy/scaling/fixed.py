"""As many replicas as are allowed, whatever comes: what a gateway without an autoscaler has."""

from serving.policy.scaling.interface import View, Wish


class Fixed:
    """It has no state."""

    def __init__(self) -> None:
        self.period_us = 1_000_000

    def decide(self, view: View) -> Wish:
        """Return a wish for `view.most` replicas, once a second."""
        return Wish(view.most, f"always {view.most}, whatever comes", pressure=1.0)
