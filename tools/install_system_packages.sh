#!/bin/sh
# Installs those of the named Debian packages that are missing.
set -eu

missing=""
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
    grep -q "install ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These Debian packages are needed:$missing. Install them as root:" \
      "apt-get install$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086  # words are wanted
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq $missing
