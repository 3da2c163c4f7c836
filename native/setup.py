"""The extension module: C for the stable ABI, so that one wheel serves Python 3.11 and later."""

from setuptools import Extension, setup

VERSION = "0.1.0"

setup(
    version=VERSION,
    py_modules=[],
    ext_modules=[
        Extension(
            "posttrain_pipeline_native",
            sources=["src/module.c", "src/rows.c", "src/ids.c"],
            depends=["src/rows.h", "src/ids.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000"), ("VERSION", f'"{VERSION}"')],
            extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
