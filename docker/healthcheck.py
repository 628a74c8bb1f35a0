#!/opt/connect-py/bin/python
"""Ask the worker of this container whether it can work; exit status 0 if so.
$CONNECT_PY_HEALTH_URL: where to ask."""

import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 8
url = os.environ.get("CONNECT_PY_HEALTH_URL") or "http://127.0.0.1:8083/health"
# The worker's certificate names the address that others use, and this process asks its own machine.
unchecked = ssl.create_default_context()
unchecked.check_hostname = False
unchecked.verify_mode = ssl.CERT_NONE
direct = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
)
try:
    with direct.open(url, timeout=SECONDS) as answer:
        print(answer.read(1000).decode(errors="replace"))
except urllib.error.HTTPError as error:
    print(error.code, error.read(1000).decode(errors="replace"))
    sys.exit(1)
except (OSError, http.client.HTTPException) as error:
    print(error)
    sys.exit(1)
