"""Builds the native extensions and the readme for PyPI; everything else is in pyproject.toml.

The extensions are optional: without a C compiler the install goes on, and the pure-Python
references are used. They are optimised, and hold no debugging information, unless the environment's
CFLAGS say otherwise.
"""

import os
import re
import runpy
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/stream-dedup/stream-dedup"
FLAGS = [] if "CFLAGS" in os.environ else ["-O3", "-g0"]


def readme() -> str:
    """Return README.md with its relative links and images made absolute."""
    text = (ROOT / "README.md").read_text("utf-8")
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
            extra_compile_args=FLAGS,
            optional=True,
        )
        for module in runpy.run_path(f"{ROOT}/stream_dedup/native.py")["EXTENSIONS"]
    ],
)
