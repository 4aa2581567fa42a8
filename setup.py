"""The native extensions; everything else stands in pyproject.toml.

Both are optional: where no C compiler is found the install goes on without them and the
pure-Python reference serves.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"stream_dedup.{module}",
            [f"stream_dedup/{module.replace('.', '/')}.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for module in ("fingerprint._kernel", "offline._native", "tables._native")
    ]
)
