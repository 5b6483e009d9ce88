"""upload_bench.cc with boto3's transfer manager, as it comes (10 threads, parts of 8 MiB).

boto3_peer.py URI BYTES    the environment of upload_bench; BYTES: whole MiB
"""
import io
import os
import random
import sys
import time
import urllib.parse

import boto3

place = urllib.parse.urlparse(sys.argv[1])
key = f"{place.path.strip('/')}/object"
content = random.Random(1).randbytes(1 << 20) * (int(sys.argv[2]) >> 20)
client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name=os.environ["AWS_REGION"])
print("ready", flush=True)
for line in sys.stdin:
    start = time.monotonic()
    if line.strip() == "put":
        client.upload_fileobj(io.BytesIO(content), place.netloc, key)
    else:
        got = io.BytesIO()
        client.download_fileobj(place.netloc, key, got)
        assert len(got.getbuffer()) == len(content)
    print(time.monotonic() - start, flush=True)
