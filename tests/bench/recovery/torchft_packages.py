"""torchft from PyPI, with what it imports besides PyTorch, for the Python that the benches use."""
import shutil
import subprocess
import sys

import torch_python

PACKAGES = (
    "torchft==0.2.0", "opentelemetry-api==1.45.2", "opentelemetry-sdk==1.45.2", "opentelemetry-proto==1.45.2", "opentelemetry-semantic-conventions==0.66b2",
    "opentelemetry-exporter-otlp-proto-http==1.45.2", "opentelemetry-exporter-otlp-proto-common==1.45.2", "opentelemetry-exporter-otlp-common==0.66b2",
    "opentelemetry-exporter-http-transport==0.66b2", "googleapis-common-protos==1.76.0", "protobuf==7.36.2", "typing_extensions==4.16.0",
    "requests==2.34.2", "certifi==2026.10.19.post1", "charset-normalizer==3.5.3", "idna==3.20", "urllib3==2.8.0",
)


def folder():
    """In the cache, made once; for PYTHONPATH."""
    found = torch_python.cache() / "python" / PACKAGES[0].replace("==", "-")
    if not found.exists():
        partial = found.with_name(found.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "--python", torch_python.python_for_benches(), "install", "--quiet", "--disable-pip-version-check",
                        "--root-user-action=ignore", "--no-deps", "--target", partial, *PACKAGES], check=True)
        partial.rename(found)
    return found
