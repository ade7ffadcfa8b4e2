"""What HTTP servers of the tests begin with: whole answers at once, and nothing on stderr."""

from http.server import BaseHTTPRequestHandler


class PlainHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def plain(self, status, body=b"", **headers):
        """A header's name is written with _ for -."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass
