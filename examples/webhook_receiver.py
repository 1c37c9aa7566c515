"""A receiver of pushes in Python: `pip install standardwebhooks`, then run

SECRET=whsec_... PORT=9000 python webhook_receiver.py

with the secret that `courier listener add` printed.
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

WEBHOOK = Webhook(os.environ["SECRET"])
SEEN: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Courier probes whether it is up."""
        self._answer(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            WEBHOOK.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self._answer(401)  # it is not from Courier, or too old
            return
        except ValueError:
            pass  # genuine: verify also parses the body, and this one is not JSON
        # Delivery is at least once: the same id may come again.
        if self.headers["webhook-id"] not in SEEN:
            print(self.headers["x-queue-name"], body.decode(), flush=True)
            SEEN.add(self.headers["webhook-id"])
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing about requests."""


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
