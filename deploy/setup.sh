#!/bin/sh
# Finds a Python of 3.11 or newer (brings Debian's where there is none) and hands over to setup.py.
set -eu
cd "$(dirname "$0")/.."

is_new_enough() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

# Sandboxes have Python 3.11; Python harnesses are compiled for it, so that one comes first.
for python in .venv/bin/python python3.11 python3 python3.12 python3.13 "${HOME:-/root}"/.pyenv/versions/3.1[123]*/bin/python; do
    if is_new_enough "$python"; then
        exec "$python" deploy/setup.py "$@"
    fi
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: bringing Python with apt-get"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv
    if is_new_enough python3; then
        exec python3 deploy/setup.py "$@"
    fi
fi
echo "setup: no Python of 3.11, 3.12 or 3.13 on PATH; install one, e.g. sudo apt-get install python3 python3-venv" >&2
exit 2
