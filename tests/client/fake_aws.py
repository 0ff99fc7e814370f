"""An endpoint on loopback that speaks AWS's protocols and answers what a test taught it; it knows no service."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Fault(Exception):
    """An error that AWS answers with."""

    code: str
    message: str = "refused by the test"
    http_status: int = 400


Answer = Mapping[str, Any] | Fault | Callable[[Parameters], Mapping[str, Any]]


@dataclass
class FakeAws:
    """What each operation answers, and which were called with what, in order."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[tuple[str, Parameters]] = field(default_factory=list)

    def called(self, operation: str) -> list[Parameters]:
        return [parameters for name, parameters in self.calls if name == operation]

    def answer(self, operation: str, parameters: Parameters) -> Mapping[str, Any]:
        self.calls.append((operation, parameters))
        answer = self.answers.get(operation, Fault("NotTaught", f"the test taught no answer to {operation}", 501))
        if isinstance(answer, Fault):
            raise answer
        return answer(parameters) if callable(answer) else answer


@contextmanager
def serving() -> Iterator[FakeAws]:
    """An endpoint for one test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    fake = FakeAws(f"http://127.0.0.1:{server.server_address[1]}")
    server.fake = fake  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """JSON for most services, forms and XML for CloudFormation, STS and IAM, paths for S3."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        target = self.headers.get("X-Amz-Target")
        if target:
            self._json(target.rpartition(".")[2], json.loads(body))
        else:
            self._query({key: values[0] for key, values in parse_qs(body).items()})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        bucket, _, key = url.path.lstrip("/").partition("/")
        if "list-type" in query:
            parameters = {"Bucket": bucket, "Prefix": query.get("prefix", [""])[0]}
            self._s3("ListObjectsV2", parameters, lambda answer: xml("ListBucketResult", answer).encode())
        elif "policy" in query:
            self._s3("GetBucketPolicy", {"Bucket": bucket}, lambda answer: str(answer["Policy"]).encode())
        else:
            self._s3("GetObject", {"Bucket": bucket, "Key": key}, lambda answer: bytes(answer["Body"]))

    def do_HEAD(self) -> None:
        bucket = urlsplit(self.path).path.lstrip("/")
        self._s3("HeadBucket", {"Bucket": bucket}, lambda _: b"")

    def log_message(self, *_: object) -> None:
        """The test's output is not the place for it."""

    def _json(self, operation: str, parameters: Parameters) -> None:
        try:
            answer = self._fake.answer(operation, parameters)
            self._send(200, json.dumps(answer, default=lambda value: value.timestamp()).encode())
        except Fault as fault:
            body = {"__type": fault.code, "message": fault.message}
            self._send(fault.http_status, json.dumps(body).encode())

    def _query(self, form: dict[str, str]) -> None:
        operation = form["Action"]
        try:
            answer = xml(f"{operation}Response", {f"{operation}Result": self._fake.answer(operation, form)})
            self._send(200, answer.encode())
        except Fault as fault:
            error = {"Error": {"Code": fault.code, "Message": fault.message}}
            self._send(fault.http_status, xml("ErrorResponse", error).encode())

    def _s3(self, operation: str, parameters: Parameters, body: Callable[[Parameters], bytes]) -> None:
        try:
            answer = self._fake.answer(operation, parameters)
            headers = {"x-amz-bucket-region": answer["BucketRegion"]} if "BucketRegion" in answer else {}
            self._send(200, body(answer), headers)
        except Fault as fault:
            text = b"" if operation == "HeadBucket" else xml("Error", {"Code": fault.code}).encode()
            self._send(fault.http_status, text)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @property
    def _fake(self) -> FakeAws:
        fake: FakeAws = self.server.fake  # type: ignore[attr-defined]
        return fake


def xml(name: str, value: object) -> str:
    """A value as AWS's query protocol writes it: lists as `member` elements."""
    if isinstance(value, Mapping):
        inner = "".join(xml(key, item) for key, item in value.items())
    elif isinstance(value, list):
        inner = "".join(xml("member", item) for item in value)
    elif isinstance(value, datetime):
        inner = value.isoformat()
    else:
        inner = escape(str(value).lower() if isinstance(value, bool) else str(value))
    return f"<{name}>{inner}</{name}>"
