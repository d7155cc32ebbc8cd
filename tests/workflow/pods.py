"""A stand-in for Kubernetes' API that runs jobs as processes on this machine and keeps their requests."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CONFIGURATION = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: someone}}}}]
users: [{{name: someone, user: {{}}}}]
"""


class Pods:
    """The jobs; folder: folder of their working directories, environment: variables of each process."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.environment = folder, dict(environment)
        self.specs: list[dict[str, Any]] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: dict[str, Any]) -> None:
        """Run the job's only container."""
        spec = job["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        name = job["metadata"]["name"]
        (self.folder / name).mkdir()
        self.specs.append(spec)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [*container["command"], *container["args"]], cwd=self.folder / name, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def status(self, name: str) -> dict[str, int]:
        code = self.running[name].poll()
        return {"active": 1} if code is None else {"failed": 1} if code else {"succeeded": 1}

    def stop(self, name: str) -> None:
        """End the job if it still runs."""
        if self.running[name].poll() is None:
            os.killpg(self.running[name].pid, signal.SIGKILL)
            self.running[name].wait()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def handler(pods: Pods) -> type[BaseHTTPRequestHandler]:
    """Return the handler of the requests that the plugin sends."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def sent(self) -> dict[str, Any]:
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")

        def job(self) -> str:
            return self.path.partition("/jobs/")[2].partition("/")[0].partition("?")[0]

        def do_POST(self) -> None:
            body = self.sent()
            if self.path.endswith("/jobs"):
                pods.start(body)
            self.answer(body)

        def do_GET(self) -> None:
            self.answer({"status": pods.status(self.job())} if self.job() else {"items": []})

        def do_DELETE(self) -> None:
            self.sent()
            if self.job():
                pods.stop(self.job())
            self.answer({})

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving(pods: Pods) -> Iterator[str]:
    """Yield a kubeconfig of the cluster; all its jobs end with the body."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(pods))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield CONFIGURATION.format(port=server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        for name in pods.running:
            pods.stop(name)
