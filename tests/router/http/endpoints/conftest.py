"""An application over the models of `worlds.py`, asked in-process."""

from pathlib import Path

import httpx
import pytest

from router.http.app import create_app
from router.http.endpoints.routes import add_endpoints
from router.payloads.bulk.pool import Bulk
from serving.values.specs import Limits
from tests.router.http.endpoints.worlds import TextServing


@pytest.fixture
def serving(tmp_path: Path) -> TextServing:
    return TextServing(tmp_path)


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def client(serving: TextServing, limits: Limits) -> httpx.AsyncClient:
    telemetry = serving.telemetry
    bulk = Bulk(limits)
    app = create_app(serving, telemetry.statistics, name="penstock", version="0.1.0", bulk=bulk)
    add_endpoints(app, serving, bulk, telemetry.endpoint_asked)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")
