"""Create a bucket if it does not exist: `make_bucket.py ENDPOINT NAME`.

Keys and region are read from the environment.
"""

import sys

from pyarrow.fs import S3FileSystem

endpoint, name = sys.argv[1:]
store = S3FileSystem(
    endpoint_override=endpoint, allow_bucket_creation=True, force_virtual_addressing=False
)
store.create_dir(name)
print(f"bucket {name} exists")
