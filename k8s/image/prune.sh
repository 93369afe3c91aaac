#!/bin/sh
# Deletes from the interpreter what no process of a testnet loads: prune.sh, in the build stage, as root.
set -eu
cd "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
# Of Python: its own tests, what makes environments, windows.
rm -rf ensurepip idlelib lib2to3 test tkinter turtledemo turtle.py venv /usr/local/include /usr/local/share/man \
    /usr/local/lib/pkgconfig config-3* /usr/local/bin/idle* /usr/local/bin/2to3* /usr/local/bin/pydoc*
cd site-packages
# Of Ray: Java, the dashboard's pages, and the libraries on top of it.
rm -rf ray/jars ray/dashboard/client ray/rllib ray/data ray/serve ray/train ray/tune ray/llm
mkdir -p ray/dashboard/client/build/static  # the job server asks whether it is there
# Of all: tests, and what only a compiler reads.
find . -type d -name tests -prune -exec rm -rf {} +
find /usr/local -type f \( -name '*.a' -o -name '*.h' -o -name '*.hpp' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.c' \
    -o -name '*.cpp' -o -name '*.pyi' \) -delete
find /usr/local -depth -type d -name __pycache__ -exec rm -rf {} +
