"""The admin server: /healthz, /readyz, /metrics and /status.

    /healthz   200 while the process can answer at all; for restarts
    /readyz    200, or 503 with the reasons as JSON, while requests would be refused; for routing
    /metrics   Prometheus text
    /status    the figures as JSON; for `mcptrace status`

Takes everything it shows as callables and knows no other room.  It is read only, asks nobody
who they are, and shows no span and no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from mcptrace_collector.config import join_endpoint, parse_endpoint
from mcptrace_collector.errors import ConfigError

SHUTDOWN_SECONDS = 1.0  # an answer takes milliseconds; a client that does not read it is cut off


class AdminServer:
    """One listening address; ``start`` binds it, ``shutdown`` may be called at any time.

    ``not_ready`` answers with the reasons for which requests would be refused now, empty when
    ready.  ``metrics`` is the text of /metrics, ``status`` the JSON of /status.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        not_ready: Callable[[], Sequence[str]],
        metrics: Callable[[], bytes],
        status: Callable[[], Mapping[str, object]],
    ) -> None:
        self._host, self._port = parse_endpoint("admin.endpoint", endpoint)
        self._not_ready = not_ready
        self._metrics = metrics
        self._status = status
        self._runner: web.AppRunner | None = None

    @property
    def endpoint(self) -> str:
        """``host:port`` as bound, once started."""
        return join_endpoint(self._host, self._port)

    async def start(self) -> None:
        """Bind and answer.  Raises ConfigError when the address cannot be bound."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_get("/status", self._status_json)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(
                f"admin.endpoint is {self.endpoint!r}, which cannot be listened on: "
                f"{error.strerror or error}; free it, choose another, "
                f"or set admin.enabled to false"
            ) from error
        self._runner = runner
        self._port = runner.addresses[0][1]

    async def shutdown(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = list(self._not_ready())
        if reasons:
            return web.json_response({"status": "not ready", "reasons": reasons}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics_text(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status_json(self, _: web.Request) -> web.Response:
        return web.json_response(dict(self._status()))
