"""What stands before the samples of a metric in the Prometheus text format."""


def head(name: str, kind: str, text: str) -> str:
    """Return the two lines before the samples of a metric."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
