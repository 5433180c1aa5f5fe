#!/bin/sh
# Installs the Debian packages named in the given lists (default: tools/packages.txt) that are missing. Does nothing when all are there.
set -eu
here=$(dirname "$0")
[ $# -gt 0 ] || set -- "$here/packages.txt"
wanted=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@")

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install_packages: this is not a Debian system; install the equivalents of these yourself:" $wanted >&2
  exit 0
fi

missing=
for package in $wanted; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "install_packages: run as root, or install sudo; missing:$missing" >&2; exit 1; }
  as_root=sudo
fi
echo "install_packages: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
