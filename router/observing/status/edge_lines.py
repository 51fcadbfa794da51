"""What `penstock status` says of TLS and of the tenants' rate limits."""

from collections.abc import Iterator, Sequence

from router.observing.rates_status import RateStatus
from router.observing.status.document import TlsStatus


def tls_lines(tls: TlsStatus | None) -> Iterator[str]:
    """Yield until when the certificate is valid, and what is wrong with its files and with handshakes."""
    if tls is None:
        return
    failed = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in tls["failed"].items() if count)
    yield (
        f" TLS: certificate until {tls['until']}, {tls['handshakes']} handshakes"
        + (f", failed: {failed}" if failed else "")
    )
    if tls["fault"]:
        yield f" TLS: the renewed files are refused: {tls['fault']}"


def rate_lines(rates: Sequence[RateStatus]) -> Iterator[str]:
    """Yield each tenant's limits, what it has open, and what was refused."""
    for each in rates:
        limits = [f"{each['requests_per_s']:g} requests/s"] if each["requests_per_s"] else []
        limits += [f"{each['rows_per_s']:g} rows/s"] if each["rows_per_s"] else []
        limits += [f"{each['concurrent']} at a time"] if each["concurrent"] else []
        refused = ", ".join(f"{count:,} by {limit}" for limit, count in each["refused"].items() if count)
        yield (
            f" rate of {each['tenant']}: at most {', '.join(limits)}; {each['open']} open"
            + (f", refused: {refused}" if refused else "")
        )
