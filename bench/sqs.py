"""An HTTP broker in Python: the SQS of moto, which keeps messages in memory and syncs nothing.

It runs on uvicorn, because moto's own server closes the connection after every answer.
A call takes ten messages at most, so it is asked for single ones only.
"""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import http
from bench.client import NewScript, Refused, Script
from bench.process import Process, free_port
from bench.workload import BODY, Workload

_RECEIPT = re.compile(rb'"ReceiptHandle": ?"([^"]+)"')
_SIGNED = "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request"


def _request(action: str, **asked: Any) -> bytes:
    body = json.dumps(asked).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: sqs.us-east-1.amazonaws.com\r\n"
        f"X-Amz-Target: AmazonSQS.{action}\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: {_SIGNED}, SignedHeaders=host, Signature=0\r\n\r\n"
    )
    return head.encode() + body


class SqsServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.process = Process(
            [
                *(sys.executable, "-m", "uvicorn", "--factory", "bench.sqs:application"),
                *("--interface", "wsgi", "--port", str(port), "--loop", "uvloop"),
                *("--http", "httptools", "--no-access-log", "--log-level", "error"),
            ],
            port=port,
            directory=directory,
        )
        self.process.wait_until(self.process.answers)
        headers = {"X-Amz-Target": "AmazonSQS.CreateQueue", "Authorization": _SIGNED}
        made = http.ask(port, "POST", "/", body={"QueueName": "bench"}, headers=headers)
        self._queue = made["QueueUrl"]

    def publish(self, client: int, batch: int) -> NewScript:
        send = _request("SendMessage", QueueUrl=self._queue, MessageBody=BODY.decode())

        def script() -> Script:
            http.check((yield send, http.whole))
            return 1

        return script

    def cycle(self, client: int, batch: int) -> NewScript:
        publish, pull = self.publish(client, 1), _request("ReceiveMessage", QueueUrl=self._queue)

        def script() -> Script:
            yield from publish()
            answer = yield pull, http.whole
            http.check(answer)
            found = _RECEIPT.search(answer)
            if found is None:
                raise Refused("nothing to receive")
            receipt = found[1].decode()
            ack = _request("DeleteMessage", QueueUrl=self._queue, ReceiptHandle=receipt)
            http.check((yield ack, http.whole))
            return 1

        return script


class Sqs:
    name = "moto's SQS, in memory"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours and workload.batch == 1

    def installed(self) -> bool:
        return find_spec("moto") is not None and find_spec("flask") is not None

    def start(self, directory: Path) -> SqsServer:
        return SqsServer(directory)


def application() -> Any:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)
