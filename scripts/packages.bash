# SPDX-License-Identifier: Apache-2.0
# Lists of the Debian packages that the build and the tests need, and a function to install them.
# shellcheck shell=bash disable=SC2034

# To build everything, and to run one machine as a SLURM cluster.
build_packages=(
  g++ cmake ninja-build
  libslurm-dev libopenmpi-dev openmpi-bin libpmix-dev
  libtorch-dev libopenblas0-pthread libhdf5-dev zlib1g-dev libssl-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev
)
cluster_packages=(
  slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 procps
)
# Additional packages for the tests.
test_packages=(
  libgtest-dev libgmock-dev bats
  python3 python3-venv python3-numpy python3-h5py
  clang libclang-rt-dev clang-format clang-tidy cppcheck shellcheck strace e2fsprogs chromium nftables
  python3-torch libgloo-dev rpm dpkg-dev file jq man-db environment-modules doxygen python3-yaml
)

# Runs a command as root, through sudo if necessary.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "this needs root or sudo: $*" >&2
    return 1
  fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

# Installs the named packages that are missing, without questions and without starting services.
need_packages() {
  if ! command -v apt-get >/dev/null; then
    echo "no apt-get here: this script is for Debian 12; elsewhere install the equivalents of: $*" >&2
    return 1
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  echo "installing ${#missing[@]} packages: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || true # the next command says what is missing
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || {
    echo "these packages could not be installed (is there a network?): ${missing[*]}" >&2
    return 1
  }
}
