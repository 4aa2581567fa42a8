"""The native extensions, and the readme as PyPI shows it; all else stands in pyproject.toml.

The extensions are optional: where no C compiler is found the install goes on without them and the
pure-Python reference serves.
"""

import re
from pathlib import Path

from setuptools import Extension, setup

REPOSITORY = "https://github.com/stream-dedup/stream-dedup"


def readme() -> str:
    """README.md; its links into the repository, and its images, lead there from anywhere."""
    text = Path(__file__).with_name("README.md").read_text("utf-8")
    raw = f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/"
    text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:)", rf"\g<1>{raw}", text)
    text = re.sub(r'((?:src|srcset)=")(?![a-z]+:)', rf"\g<1>{raw}", text)
    return re.sub(r"(?<!!)(\[[^][]*\]\()(?![a-z]+:|#)", rf"\g<1>{REPOSITORY}/blob/main/", text)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            f"stream_dedup.{module}",
            [f"stream_dedup/{module.replace('.', '/')}.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for module in (
            "columnar._native",
            "kafka._fastpath._batches",
            "fingerprint._kernel",
            "index.redis._resp",
            "offline._native",
            "tables._native",
        )
    ],
)
