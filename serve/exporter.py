"""The metrics of all processes of a node, for Prometheus: `fourfold metrics`.

It runs beside the processes, in the same container: they write into a folder, and whose process is
gone is seen by its number.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from serve import metrics

PORT = 9400


class _Page(BaseHTTPRequestHandler):
    server_version = "fourfold"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = metrics.render()
        self.send_response(200)
        self.send_header("Content-Type", metrics.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Scrapes are no news."""


def server(host: str, port: int) -> ThreadingHTTPServer:
    """Answers /metrics on `host`:`port` once `serve_forever` is called; port 0 takes a free one."""
    return ThreadingHTTPServer((host, port), _Page)
