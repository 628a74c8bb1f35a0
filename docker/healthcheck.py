#!/opt/connect-py/bin/python
"""Check the health of the worker in this container; exit status 0 if it is healthy.

$CONNECT_PY_HEALTH_URL: the URL of the check.
"""

import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 8
url = os.environ.get("CONNECT_PY_HEALTH_URL") or "http://127.0.0.1:8083/health"
# The worker's certificate is for its public address, but this request goes to the loopback
# interface.
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
