"""A worker in Python: `pip install standardwebhooks`, then run

SECRET=$(courier worker add mill http://127.0.0.1:8788/) PORT=8788 python worker_python.py
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

WEBHOOK = Webhook(os.environ["SECRET"])


def handle(queue: str, message: dict[str, Any]) -> None:
    """Your work. What raises is sent again."""
    print(queue, message["id"], message["body"], flush=True)
    if message["body"] == "fail":
        raise ValueError("as you wish")


class Worker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            batch = WEBHOOK.verify(
                body, {name.lower(): value for name, value in self.headers.items()}
            )
        except WebhookVerificationError:
            self.send_error(401)
            return
        retries = []
        for message in batch["messages"]:
            try:
                handle(batch["queue"], message)
            except Exception as error:
                print(f"{message['id']}: {error}", flush=True)
                retries.append({"id": message["id"], "delay_seconds": 1})
        answer = json.dumps({"retries": retries}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Without a line for every request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Worker).serve_forever()
