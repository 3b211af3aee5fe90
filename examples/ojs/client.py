"""One request to agq, and its errors as sentences: what producer.py and worker.py share."""

import http.client
import json
import os
import urllib.error
import urllib.request

URL = (os.environ.get("AGQ_URL") or "http://127.0.0.1:6381").rstrip("/")
MEDIA_TYPE = "application/openjobspec+json"


class Trouble(Exception):
    """A request that came to nothing; `status` is None where no answer came."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status

    @property
    def may_pass(self):
        return self.status is None or self.status == 429 or self.status >= 500


def session_key():
    key = os.environ.get("AGQ_SESSION_KEY", "").strip()
    if not key:
        raise SystemExit("AGQ_SESSION_KEY is not set, and agq lets nobody in without it. "
                         "Set it to the key that agq has.")
    return key


def call(method, path, body=None, timeout=10):
    """Sends a request, and returns what the answer's JSON says."""
    headers = {"Authorization": f"Bearer {session_key()}", "Content-Type": MEDIA_TYPE}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(f"{URL}/ojs/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise refused(error) from error
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(f"No answer came from agq at {URL} ({reason(error)}). "
                      "Start agq with --http, or set AGQ_URL to where it listens.") from error
    except ValueError as error:
        raise SystemExit(f"No request can be made of AGQ_URL ({URL}) and AGQ_SESSION_KEY: {error}. "
                         "Set AGQ_URL to something like http://127.0.0.1:6381.") from error
    return parsed(text)


def reason(error):
    return getattr(error, "reason", None) or error


def parsed(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise Trouble(f"What answers at {URL} sends no JSON, so it is not agq. "
                      "Set AGQ_URL to the address of agq's --http.", 400) from error


def refused(answer):
    if answer.code == 401:
        text = f"agq at {URL} does not know the key. Set AGQ_SESSION_KEY to the key that agq has."
        return Trouble(text, 401)
    error = parsed(answer.read()).get("error", {})
    text = f"agq refused the request ({answer.code}): {error.get('message')}. {error.get('hint', '')}"
    return Trouble(text.strip(), answer.code)
