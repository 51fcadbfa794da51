"""TLS of grpc.aio's server, whose core encrypts by itself: it asks for the certificates at each handshake."""

from typing import Any  # grpc carries no types

import grpc

from router.security.tls.certificates import Certificates


def credentials(certificates: Certificates) -> Any:
    """Return what a port of grpc is opened with. A renewed certificate serves the next handshake."""
    tls, seen = certificates.tls, certificates.pem

    def configure(pem: tuple[bytes, bytes, bytes | None]) -> Any:
        key, chain, client_ca = pem
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=client_ca)

    def fetch() -> Any:
        """Return the certificates where they are other ones; None where they are not, as grpc asks for."""
        nonlocal seen
        if certificates.pem is seen:
            return None
        seen = certificates.pem
        return configure(seen)

    return grpc.dynamic_ssl_server_credentials(configure(seen), fetch, tls.requires)
