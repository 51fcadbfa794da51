"""Whether the files of `server: {tls: ...}` can serve, for `penstock check` and the start."""

import time

from router.settings.door.certificates import CertificateError, Validity, inspect, written
from router.settings.door.tls import LOC
from router.settings.gateway import Settings
from router.settings.values.problems import SettingsError, SettingsProblem


def check_tls(settings: Settings) -> tuple[SettingsProblem, ...]:
    """Return what the operator should know: the certificate is about to expire, or those of clients count for
    nothing. SettingsError, with the place in the settings file, where the files cannot serve."""
    tls, validity = settings.server.tls, validity_of(settings)
    if tls is None or validity is None:
        return ()
    found = []
    if validity.is_soon_over(time.time()):
        cure = "renew it: the gateway takes the new file without a restart"
        message = f"the certificate expires {written(validity.until_s)}; {cure}"
        found.append(_problem(settings, "cert", message))
    if tls.client_ca is not None and not tls.requires and settings.auth is None:
        expected = "expected `auth:` with entries for certificates, or `client_cert: require`"
        found.append(_problem(settings, "client_ca", f"without keys no certificate is looked at; {expected}"))
    return tuple(found)


def validity_of(settings: Settings) -> Validity | None:
    """Return until when the certificate is valid; None without TLS. SettingsError as `check_tls`."""
    if settings.server.tls is None:
        return None
    try:
        return inspect(settings.server.tls, time.time())
    except CertificateError as error:
        raise SettingsError([_problem(settings, error.which, error.message)]) from None


def _problem(settings: Settings, which: str, message: str) -> SettingsProblem:
    document = settings.document
    if document is None:  # not read from a file
        return SettingsProblem(str(settings.path), 1, 1, "", message)
    return document.problem((*LOC, which), message)
